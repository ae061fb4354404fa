//! The papers, by the numbers that study and claim IDs begin with.

use serde::Serialize;

/// A paper.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct Document {
    /// Three digits, the prefix of the IDs of its studies and claims.
    pub number: &'static str,
    /// Authors, title and year.
    pub title: &'static str,
}

/// All papers.
pub const DOCUMENTS: [Document; 5] = [
    Document {
        number: "000",
        title: "Nahum, Yates, O'Malley, Orman, Schroeppel: Parallelized Network Security Protocols, 1996 (part of it)",
    },
    Document { number: "001", title: "Status report on the Gigabit Kits, Oakland University, 2000 (slides)" },
    Document {
        number: "002",
        title: "Ruetsche, Kaiserswerth: TCP/IP on the Parallel Protocol Engine, 1992 (half of its pages)",
    },
    Document {
        number: "003",
        title: "Dempsey, Fenton, Michel, Waterman, Weaver: A Performance Evaluation of the SAFENET Lightweight \
                System, about 1993",
    },
    Document {
        number: "004",
        title: "Report on coarse-grain parallelism in networking, Old Dominion University, early 1990s",
    },
];

/// Returns the paper of a study or claim with this ID; `None` if the ID does not begin with the
/// number of a paper.
pub fn of(id: &str) -> Option<&'static Document> {
    let number = id.split_once('-').map_or(id, |(number, _)| number);
    DOCUMENTS.iter().find(|document| document.number == number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_begins_with_the_number_of_its_paper() {
        assert_eq!(of("004-table-2").map(|document| document.number), Some("004"));
        assert_eq!(of("001").map(|document| document.number), Some("001"));
        assert_eq!((of("009-table-1"), of("table-1"), of("0045-x")), (None, None, None));
    }
}
