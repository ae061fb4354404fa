//! The filter: a program for the kernel's classic BPF machine that sees the number of each system call.

use crate::syscall::Syscall;

/// Offsets in `struct seccomp_data` (seccomp(2)).
const NUMBER_AT: u32 = 0;
const ARCHITECTURE_AT: u32 = 4;

/// The architecture as the audit system names it: the ELF machine, 64 bits, little endian.
const ARCHITECTURE: u32 = 0xc000_0000
    | if cfg!(target_arch = "x86_64") {
        libc::EM_X86_64 as u32
    } else if cfg!(target_arch = "aarch64") {
        libc::EM_AARCH64 as u32
    } else {
        panic!("the system calls of this architecture are not known here")
    };

/// Instructions of a filter.
pub(crate) const LEN: usize = 5 + Syscall::ALL.len();

/// A filter that notifies of all of [`Syscall`], and lets everything else through. Calls by the
/// conventions of another architecture, such as those of 32-bit programs, are let through, too.
pub(crate) fn program() -> [libc::sock_filter; LEN] {
    let calls = Syscall::ALL.len() as u8;
    let load = |at| statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, at);
    let give = |value| statement(libc::BPF_RET | libc::BPF_K, value);
    let mut all = [give(libc::SECCOMP_RET_ALLOW); LEN];
    all[0] = load(ARCHITECTURE_AT);
    // Otherwise to the end but one.
    all[1] = jump_if(ARCHITECTURE, 0, calls + 1);
    all[2] = load(NUMBER_AT);
    for (index, syscall) in Syscall::ALL.into_iter().enumerate() {
        // The last instruction notifies.
        all[3 + index] = jump_if(syscall.number(), calls - index as u8, 0);
    }
    all[LEN - 1] = give(libc::SECCOMP_RET_USER_NOTIF);
    all
}

fn statement(code: u32, value: u32) -> libc::sock_filter {
    libc::sock_filter { code: code as u16, jt: 0, jf: 0, k: value }
}

/// Skips `equal` instructions if the loaded value is `value`, otherwise `other`.
fn jump_if(value: u32, equal: u8, other: u8) -> libc::sock_filter {
    libc::sock_filter { code: (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16, jt: equal, jf: other, k: value }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs the filter as the kernel does.
    fn run(number: u32, architecture: u32) -> u32 {
        let (program, mut loaded, mut at) = (program(), 0, 0);
        loop {
            let libc::sock_filter { code, jt, jf, k } = program[at];
            at += 1;
            match u32::from(code) {
                code if code == libc::BPF_LD | libc::BPF_W | libc::BPF_ABS => {
                    loaded = if k == NUMBER_AT { number } else { architecture };
                }
                code if code == libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K => {
                    at += usize::from(if loaded == k { jt } else { jf });
                }
                code if code == libc::BPF_RET | libc::BPF_K => return k,
                code => panic!("instruction {code:#x}"),
            }
        }
    }

    #[test]
    fn only_the_named_calls_of_this_architecture_notify() {
        for number in 0..600 {
            let is_named = Syscall::of(number as i32).is_some();
            let result = if is_named { libc::SECCOMP_RET_USER_NOTIF } else { libc::SECCOMP_RET_ALLOW };
            assert_eq!(run(number, ARCHITECTURE), result, "{number}");
            assert_eq!(run(number, ARCHITECTURE ^ 0x8000_0000), libc::SECCOMP_RET_ALLOW, "{number}");
        }
        let x32 = Syscall::Connect.number() | 0x4000_0000;
        assert_eq!(run(x32, ARCHITECTURE), libc::SECCOMP_RET_ALLOW);
    }
}
