//! The groups in which the help lists the commands.

/// Commands for one purpose.
pub(crate) struct Group {
    pub(crate) title: &'static str,
    /// The names, in the order of the help.
    pub(crate) commands: &'static [&'static str],
}

/// All groups. Every visible command is in one of them.
pub(crate) const GROUPS: &[Group] = &[
    Group { title: "Transfer", commands: &["send", "recv", "tickets", "id", "paths"] },
    Group { title: "Networks", commands: &["tunnel", "forward", "run", "daemon"] },
    Group { title: "Emulation", commands: &["emulate", "demo"] },
    Group { title: "TCP/IP", commands: &["tcp"] },
    Group { title: "Measurement", commands: &["bench", "profile", "predict"] },
    Group { title: "Research", commands: &["scenario", "study", "replay"] },
    Group { title: "Other", commands: &["version", "completions", "man", "help"] },
];

#[cfg(test)]
mod tests {
    use super::super::help::command_for;
    use super::*;

    #[test]
    fn every_visible_command_is_in_one_group() {
        let mut command = command_for(80);
        command.build();
        let mut commands: Vec<_> =
            command.get_subcommands().filter(|below| !below.is_hide_set()).map(|below| below.get_name()).collect();
        let mut grouped: Vec<_> = GROUPS.iter().flat_map(|group| group.commands.iter().copied()).collect();
        commands.sort_unstable();
        grouped.sort_unstable();
        assert_eq!(grouped, commands);
    }

    #[test]
    fn the_help_shows_the_groups() {
        let help = command_for(80).render_help().to_string();
        for group in GROUPS {
            let place = help.find(&format!("\n{}:\n  {}", group.title, group.commands[0]));
            assert!(place.is_some(), "{}:\n{help}", group.title);
        }
    }
}
