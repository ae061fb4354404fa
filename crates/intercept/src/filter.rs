//! The filter: a program for the kernel's classic BPF machine, which sees the number and the
//! arguments of each system call.

use crate::syscall::{Condition, Syscall};

/// Offsets in `struct seccomp_data` (seccomp(2)).
const NUMBER_AT: u32 = 0;
const ARCHITECTURE_AT: u32 = 4;
const ARGUMENTS_AT: u32 = 16;

/// ELF machines (elf(5)); libc does not define them for musl.
const EM_X86_64: u32 = 62;
const EM_AARCH64: u32 = 183;

/// Architecture in the audit system's encoding: the ELF machine, 64 bits, little endian.
const ARCHITECTURE: u32 = 0xc000_0000
    | if cfg!(target_arch = "x86_64") {
        EM_X86_64
    } else if cfg!(target_arch = "aarch64") {
        EM_AARCH64
    } else {
        panic!("the system calls of this architecture are not known here")
    };

const LET_THROUGH: libc::sock_filter = give(libc::SECCOMP_RET_ALLOW);
const NOTIFY: libc::sock_filter = give(libc::SECCOMP_RET_USER_NOTIF);

/// Returns a filter that notifies of these calls if their arguments meet their conditions, and lets
/// everything else through. Calls by the conventions of another architecture, such as those of
/// 32-bit programs, are let through, too.
pub(crate) fn program(calls: &[Syscall]) -> Vec<libc::sock_filter> {
    let mut all = vec![load(ARCHITECTURE_AT), jump_if(ARCHITECTURE, 1, 0), LET_THROUGH, load(NUMBER_AT)];
    for syscall in calls {
        let decision = decision(syscall.condition());
        all.push(jump_if(syscall.number(), 0, decision.len() as u8));
        all.extend(decision);
    }
    all.push(LET_THROUGH);
    all
}

/// Returns the instructions for a call whose number matches. They end the program.
fn decision(condition: Condition) -> Vec<libc::sock_filter> {
    match condition {
        Condition::None => vec![NOTIFY],
        Condition::Are([one, two]) => {
            let [(one, wanted_one), (two, wanted_two)] = [one, two];
            vec![
                load(argument_at(one)),
                jump_if(wanted_one, 0, 3),
                load(argument_at(two)),
                jump_if(wanted_two, 0, 1),
                NOTIFY,
                LET_THROUGH,
            ]
        }
        Condition::IsPointer(index) => {
            let at = argument_at(index);
            vec![load(at), jump_if(0, 0, 2), load(at + 4), jump_if(0, 1, 0), NOTIFY, LET_THROUGH]
        }
        Condition::HasFlag(index, flag) => {
            vec![load(argument_at(index)), jump(libc::BPF_JSET, flag, 0, 1), NOTIFY, LET_THROUGH]
        }
    }
}

/// Returns the offset of the lower half of an argument. The upper half follows.
const fn argument_at(index: usize) -> u32 {
    ARGUMENTS_AT + 8 * index as u32
}

const fn load(at: u32) -> libc::sock_filter {
    statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, at)
}

const fn give(value: u32) -> libc::sock_filter {
    statement(libc::BPF_RET | libc::BPF_K, value)
}

const fn statement(code: u32, value: u32) -> libc::sock_filter {
    libc::sock_filter { code: code as u16, jt: 0, jf: 0, k: value }
}

/// Returns an instruction that skips `equal` instructions if the loaded value is `value`, otherwise
/// `other`.
const fn jump_if(value: u32, equal: u8, other: u8) -> libc::sock_filter {
    jump(libc::BPF_JEQ, value, equal, other)
}

/// Returns an instruction that skips `yes` instructions if the comparison of the loaded value with
/// `value` holds, otherwise `no`.
const fn jump(comparison: u32, value: u32, yes: u8, no: u8) -> libc::sock_filter {
    libc::sock_filter { code: (libc::BPF_JMP | comparison | libc::BPF_K) as u16, jt: yes, jf: no, k: value }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs the filter like the kernel.
    fn run(calls: &[Syscall], number: u32, architecture: u32, arguments: [u64; 6]) -> u32 {
        let (program, mut loaded, mut at) = (program(calls), 0, 0);
        let mut data = [number.to_le_bytes(), architecture.to_le_bytes(), [0; 4], [0; 4]].concat();
        data.extend(arguments.iter().flat_map(|argument| argument.to_le_bytes()));
        loop {
            let libc::sock_filter { code, jt, jf, k } = program[at];
            at += 1;
            match u32::from(code) {
                code if code == libc::BPF_LD | libc::BPF_W | libc::BPF_ABS => {
                    loaded = u32::from_le_bytes(data[k as usize..][..4].try_into().unwrap());
                }
                code if code == libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K => {
                    at += usize::from(if loaded == k { jt } else { jf });
                }
                code if code == libc::BPF_JMP | libc::BPF_JSET | libc::BPF_K => {
                    at += usize::from(if loaded & k != 0 { jt } else { jf });
                }
                code if code == libc::BPF_RET | libc::BPF_K => return k,
                code => panic!("instruction {code:#x}"),
            }
        }
    }

    #[test]
    fn only_the_named_calls_of_this_architecture_notify() {
        // An address, and the error of a socket.
        let arguments = [3, libc::SOL_SOCKET as u64, libc::SO_ERROR as u64, 0, 1, 0];
        for calls in [&Syscall::ALL[..], &Syscall::ALL[..2], &[]] {
            for number in 0..600 {
                let is_named = Syscall::of(number as i32).is_some_and(|syscall| calls.contains(&syscall));
                let result = if is_named { libc::SECCOMP_RET_USER_NOTIF } else { libc::SECCOMP_RET_ALLOW };
                assert_eq!(run(calls, number, ARCHITECTURE, arguments), result, "{number}");
                let other = run(calls, number, ARCHITECTURE ^ 0x8000_0000, arguments);
                assert_eq!(other, libc::SECCOMP_RET_ALLOW, "{number}");
            }
        }
        let x32 = Syscall::Connect.number() | 0x4000_0000;
        assert_eq!(run(&Syscall::ALL, x32, ARCHITECTURE, arguments), libc::SECCOMP_RET_ALLOW);
    }

    #[test]
    fn arguments_decide() {
        let notifies = |syscall: Syscall, arguments: [u64; 6]| {
            run(&Syscall::ALL, syscall.number(), ARCHITECTURE, arguments) == libc::SECCOMP_RET_USER_NOTIF
        };
        for (level, name, expected) in [
            (libc::SOL_SOCKET, libc::SO_ERROR, true),
            (libc::SOL_SOCKET, libc::SO_TYPE, false),
            (libc::IPPROTO_TCP, libc::SO_ERROR, false),
        ] {
            // The kernel reads an int from the register.
            for above in [0, 7 << 32] {
                let arguments = [3, level as u64 | above, name as u64 | above, 0, 0, 0];
                assert_eq!(notifies(Syscall::SocketError, arguments), expected, "{level} {name}");
            }
        }
        // Connections made by a call that sends.
        let fast = [Syscall::FastOpenTo, Syscall::FastOpenMessage, Syscall::FastOpenMessages];
        for (syscall, index) in fast.into_iter().zip([3, 2, 3]) {
            for (flags, expected) in [(libc::MSG_FASTOPEN, true), (libc::MSG_DONTWAIT, false), (-1, true)] {
                let mut arguments = [3, 0, 0, 0, 1, 0];
                arguments[index] = flags as u64;
                let result = run(&fast, syscall.number(), ARCHITECTURE, arguments);
                assert_eq!(result == libc::SECCOMP_RET_USER_NOTIF, expected, "{syscall:?} {flags:#x}");
            }
        }
        let of_pointers =
            [(Syscall::Accept, 1), (Syscall::Accept4, 1), (Syscall::ReceiveFrom, 4), (Syscall::SendTo, 4)];
        for (syscall, index) in of_pointers {
            for (pointer, expected) in [(0, false), (1, true), (1 << 32, true), (u64::MAX, true)] {
                let mut arguments = [3, 0, 0, 0, 0, 0];
                arguments[index] = pointer;
                assert_eq!(notifies(syscall, arguments), expected, "{syscall:?} {pointer:#x}");
            }
        }
    }
}
