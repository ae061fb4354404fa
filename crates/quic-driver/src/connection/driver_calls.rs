//! The driver's calls: events, batches, plans, the end, and the detached receive half.

use std::sync::Arc;

use driver::protocol::{EventSummary, Served, SocketsLost};
use driver::{ConnectionKey, EndReason, SendError};
use quic::{Event, PathId};
use units::Instant;

use super::Connection;
use crate::detached::{DetachedReceiveHalf, ReceiveReport, ReceiveUpdate};
use crate::detached_state::DEFERRED_MAX;
use crate::error::Closed;
use crate::leases::Lease;
use crate::packets::{OpenJob, Packets, Plan};
use crate::quic_protocol::Quic;

/// A received batch of at least this many bytes indicates a bulk transfer, for which detaching the
/// receive half is worthwhile.
const BULK_FROM: usize = 8 << 10;

impl<K: Packets> driver::Connection<Quic<K>> for Connection<K> {
    type Receipt = quic::Receipt;

    fn serve(&mut self, now: Instant) -> Served {
        self.serve_requests(now)
    }

    fn process_events(&mut self, clock: &dyn Fn() -> Instant) -> EventSummary {
        let mut summary = EventSummary::default();
        while let Some(event) = self.quic.poll_event() {
            summary.is_established |= event == Event::Connected;
            summary.is_available |= self.becomes_available(&event);
            summary.is_over |= matches!(event, Event::Closed(_));
            let now = clock();
            if let Some(observer) = &self.observer {
                observer(now, &event, &self.quic);
            }
            self.on_event(now, event);
        }
        summary
    }

    fn apply_limits(&mut self) {
        self.serve_rate();
    }

    fn absorb(&mut self, now: Instant, socket: usize, batch: K::Batch) {
        K::absorb(&mut self.quic, now, K::addresses(socket, &batch), batch);
    }

    fn begin_open(&mut self, now: Instant, socket: usize, batch: &K::Batch, job: &mut OpenJob<K>) -> bool {
        K::begin_open(&mut self.quic, now, K::addresses(socket, batch), batch, &mut job.job)
    }

    fn absorb_opened(&mut self, now: Instant, job: &mut OpenJob<K>, batch: K::Batch) {
        K::absorb_opened(&mut self.quic, now, &mut job.job, batch);
    }

    fn absorb_leased(&mut self, now: Instant, job: &mut OpenJob<K>, batch: K::Batch) {
        K::absorb_leased(&mut self.quic, now, &mut job.job, batch);
    }

    fn poll_plan(&mut self, now: Instant, socket_budget: &dyn Fn(usize) -> usize, plan: &mut Plan<K>) -> bool {
        if self.has_datagrams() {
            self.serve_datagrams();
        }
        let is_planned = self.quic.poll_plan_where(now, &|socket| socket_budget(usize::from(socket)), &mut plan.plan);
        // Leases must be updated before the plan leaves, because the peer may answer it at once:
        // see the module `leases`.
        self.leases.update(&self.quic);
        is_planned
    }

    fn has_only_a_tail(&mut self, packets: usize) -> bool {
        self.quic.has_only_a_tail(packets)
    }

    fn receipt(plan: &Plan<K>) -> quic::Receipt {
        plan.plan.receipt()
    }

    fn handle_emitted(&mut self, now: Instant, receipt: &quic::Receipt) {
        self.quic.handle_emitted(now, receipt);
        self.refusals.on_emitted(receipt.path());
    }

    fn handle_not_emitted(&mut self, now: Instant, receipt: &quic::Receipt, error: &SendError) -> bool {
        self.quic.handle_not_emitted(receipt);
        if receipt.is_off_path() {
            // Its probing frames are repeated on another path.
            return true;
        }
        let path = receipt.path();
        if *error == SendError::TooLarge && self.quic.handle_too_large(now, path) {
            return true;
        }
        let text = error.to_string();
        if self.quic.is_handshaking() {
            // This is the most likely reason if the handshake times out.
            self.last_send_error = Some(text);
        } else {
            let verdict = self.refusals.on_refused(now, path, &text);
            let is_smaller = verdict.tries_smaller && self.quic.handle_too_large(now, path);
            if is_smaller || verdict.is_news {
                tracing::debug!(%path, %error, is_smaller, "the system refuses to send on a path");
                self.report_send_refused(path, text, is_smaller);
            }
            if is_smaller {
                return true;
            }
        }
        let has_other = self.quic.handle_refused(now, path);
        if has_other {
            tracing::debug!(%path, %error, "the system refuses to send on a path: using the others");
        }
        has_other
    }

    fn handle_unsent(&mut self, receipt: &quic::Receipt) {
        self.quic.handle_not_emitted(receipt);
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.quic.poll_timeout()
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.quic.handle_timeout(now);
    }

    fn close(&mut self, now: Instant, reason: EndReason) {
        self.end_override.get_or_insert_with(|| reason.into());
        self.quic.close(now, 0, "");
    }

    fn is_over(&self) -> bool {
        self.quic.is_closed()
    }

    fn end(&mut self, now: Instant, reason: EndReason) {
        self.on_closed(now, reason.into());
    }

    fn abandon(&mut self, reason: EndReason) {
        self.abandon_handles(reason.into());
    }

    fn local_ip(&self) -> Option<std::net::IpAddr> {
        self.quic.addresses().local_ip
    }

    fn is_accepted(&self) -> bool {
        self.quic.side() == quic::Side::Server
    }

    fn handle_sockets_lost(&mut self, now: Instant, lost: &SocketsLost<'_>) -> bool {
        let paths = self.quic.path_stats();
        let socket_of = |path: &quic::PathStats| usize::from(path.addresses.socket);
        let lost_paths: Vec<PathId> =
            paths.iter().filter(|path| (lost.is_lost)(socket_of(path))).map(|path| path.id).collect();
        if lost_paths.is_empty() {
            return false;
        }
        let has_other = paths.iter().any(|path| (lost.is_served)(socket_of(path)));
        for path in lost_paths {
            // The scheduler uses the other paths. The code above has determined whether there are
            // any.
            let _has_open = self.quic.handle_refused(now, path);
        }
        if !has_other && lost.is_gone {
            self.end_override.get_or_insert(Closed::ProcessorGone);
            self.quic.close(now, 0, "");
            // No packet can leave any more, so the close does not wait for one.
            self.on_closed(now, Closed::ProcessorGone);
        }
        true
    }

    fn note_arrived(&mut self, len_bytes: usize) {
        self.bulk_arrives |= len_bytes >= BULK_FROM;
    }

    fn take_detach_request(&mut self, now: Instant) -> bool {
        if !self.bulk_arrives || self.detached.is_some() || self.attached_until > now || !self.quic.can_detach() {
            return false;
        }
        self.bulk_arrives = false;
        true
    }

    fn detach(&mut self) -> Option<Box<DetachedReceiveHalf>> {
        let (part, delivery) = self.detach_receive_half()?;
        Some(Box::new(DetachedReceiveHalf::new(part, delivery)))
    }

    fn is_detached(&self) -> bool {
        self.detached.is_some()
    }

    fn has_detached_half(&self) -> bool {
        self.detached.as_ref().is_some_and(|detached| !detached.is_recalled)
    }

    fn owns(&self, half: &Box<DetachedReceiveHalf>) -> bool {
        half.cell().is_some_and(|cell| Arc::ptr_eq(&self.cell, cell))
    }

    fn attach(&mut self, now: Instant, half: Box<DetachedReceiveHalf>) -> Vec<(usize, K::Batch)> {
        let Some((part, delivery)) = half.into_parts() else { return Vec::new() };
        self.attach_receive_half(now, part, delivery)
    }

    fn handle_report(&mut self, now: Instant, report: &mut Box<ReceiveReport>) {
        self.quic.handle_report(now, &mut report.quic);
        self.publish_accepted(std::mem::take(&mut report.accepted));
    }

    fn poll_update(&mut self, update: &mut Box<ReceiveUpdate>) -> (bool, bool) {
        self.poll_receive_update(update)
    }

    fn grant_lease(&mut self, key: ConnectionKey, worker: usize, batch: &K::Batch) -> Option<Lease> {
        self.leases.grant(&mut self.quic, (key, &self.cell), worker, K::first_bytes(batch)?)
    }

    fn note_quiet(&mut self) {
        if let Some(detached) = &mut self.detached {
            detached.is_quiet = true;
        }
    }

    fn defer(&mut self, socket: usize, batch: K::Batch) -> bool {
        let detached = self.detached.as_mut().filter(|detached| detached.deferred.len() < DEFERRED_MAX);
        let Some(detached) = detached else { return false };
        detached.deferred.push((socket, batch));
        true
    }

    fn lose_receive_half(&mut self, now: Instant, reason: EndReason) -> usize {
        self.end_without_receive_half(now, reason.into())
    }
}
