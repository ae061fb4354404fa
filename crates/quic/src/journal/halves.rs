//! Making happen again what a connection in halves did: both on one thread, with the boxes they gave each other.

use std::collections::VecDeque;

use units::Instant;

use super::apply::{Came, Compared, Expected, Hands, compare_event};
use super::entry::{Input, Memory};
use super::outcome::Answer;
use crate::connection::Connection;
use crate::exchange::Exchange;
use crate::part::{Findings, Orders, ReceivePart};

/// Boxes on their way in one direction, at most: more than the rings of any engine hold.
const BOXES_MAX: usize = 4096;

/// Values and acknowledged ranges that the halves have for each other, at most: some 100 MB. An engine stops receiving long before.
const VALUES_MAX: usize = 1 << 20;

/// The receive half while it is apart, and what is on its way between the two.
#[derive(Default)]
pub(crate) struct Halves {
    part: Option<(ReceivePart, Memory)>,
    orders: VecDeque<Orders>,
    findings: VecDeque<Findings>,
}

/// The box of this number; those before it were lost.
fn take_box<T>(boxes: &mut VecDeque<T>, number: u64, number_of: impl Fn(&T) -> u64) -> Result<T, (String, String)> {
    while let Some(taken) = boxes.pop_front() {
        if number_of(&taken) == number {
            return Ok(taken);
        }
    }
    Err((format!("box {number}"), "none of this number was given".to_owned()))
}

/// A box was given, of this number or of another.
fn give_box<T>(boxes: &mut VecDeque<T>, given: Option<T>, number: u64, number_of: impl Fn(&T) -> u64) -> Compared {
    let expected = || format!("box {number}");
    let given = given.ok_or_else(|| (expected(), "nothing to give".to_owned()))?;
    if number_of(&given) != number {
        return Err((expected(), format!("box {}", number_of(&given))));
    }
    if boxes.len() >= BOXES_MAX {
        return Err((format!("at most {BOXES_MAX} boxes on their way"), "more".to_owned()));
    }
    boxes.push_back(given);
    Ok(Came::Nothing)
}

impl Halves {
    /// What reading entries of the receive half remembers; none if it is not apart.
    pub(crate) fn memory(&mut self) -> Option<&mut Memory> {
        self.part.as_mut().map(|(_, memory)| memory)
    }

    /// Whether the halves have more for each other than any log may make them keep.
    pub(crate) fn is_overfull(&self, connection: &Connection) -> bool {
        let Some((part, _)) = &self.part else { return false };
        let size_of = |exchange: &Exchange| exchange.to_send.len() + exchange.to_control.len() + exchange.ranges.len();
        // Boxes are few as a rule, and mostly one.
        let orders: usize = self.orders.iter().map(|orders| orders.values.len()).sum();
        let findings: usize = self.findings.iter().map(|findings| size_of(&findings.exchange)).sum();
        orders + findings + size_of(&part.exchange) + connection.orders_waiting() > VALUES_MAX
    }

    /// What the connection did that concerns its receive half; none for other inputs.
    pub(crate) fn apply_to_both(
        &mut self,
        connection: &mut Connection,
        now: Instant,
        input: &Input,
    ) -> Option<Compared> {
        let gone = || ("a receive half that is apart".to_owned(), "none".to_owned());
        Some(match input {
            Input::Parted => match connection.part() {
                Some(part) => {
                    *self = Self { part: Some((part, Memory::new(now))), ..Self::default() };
                    Ok(Came::Nothing)
                }
                None => Err(("a receive half that parts".to_owned(), "none".to_owned())),
            },
            Input::GaveOrders(number) => {
                let mut orders = Orders::default();
                let given = connection.poll_orders(&mut orders).then_some(orders);
                give_box(&mut self.orders, given, *number, |orders| orders.number)
            }
            Input::TookFindings(number) => take_box(&mut self.findings, *number, |findings| findings.number)
                .map(|mut findings| connection.handle_findings(now, &mut findings))
                .map(|()| Came::Nothing),
            Input::Rejoined => match self.part.take() {
                Some((part, _)) => {
                    connection.rejoin(now, part);
                    Ok(Came::Nothing)
                }
                None => Err(gone()),
            },
            _ => return None,
        })
    }

    /// What the receive half did.
    pub(crate) fn apply(&mut self, hands: &Hands, now: Instant, input: &mut Input, expected: &Expected) -> Compared {
        let Some((part, _)) = &mut self.part else { unreachable!("its entries are read only while it is apart") };
        match input {
            Input::Arrival { path, addresses, count, len } => {
                if !part.note_arrival(now, *path, addresses, *count, *len) {
                    return Err(("a batch of a path that it knows".to_owned(), "a strange one".to_owned()));
                }
                return Ok(Came::Nothing);
            }
            Input::Opened { batch, records } => {
                let buffer = records.buffer(&hands.zeros);
                part.absorb(now, &records.opened, &buffer, batch.integrity_limit);
                return Ok(Came::Nothing);
            }
            Input::TookOrders(number) => {
                let mut orders = take_box(&mut self.orders, *number, |orders| orders.number)?;
                part.handle_orders(now, &mut orders);
                return Ok(Came::Nothing);
            }
            Input::GaveFindings(number) => {
                let mut findings = Findings::default();
                let given = part.poll_findings(&mut findings).then_some(findings);
                return give_box(&mut self.findings, given, *number, |findings| findings.number);
            }
            Input::Event(event) => return compare_event(*event, part.poll_event()),
            _ => {}
        }
        let answer = match input {
            Input::Accept(dir) => Answer::maybe(part.accept(*dir).map(|id| id.raw())),
            Input::Read(id, len) => Answer::read(&part.read(now, *id, *len)),
            Input::Stop(id, code) => Answer::stopped(part.stop(now, *id, *code)),
            Input::RecvDatagram => Answer::maybe(part.recv_datagram().map(|data| data.len() as u64)),
            other => unreachable!("{other:?} is no input of a receive half"),
        };
        input.compare_answer(answer, expected)
    }
}
