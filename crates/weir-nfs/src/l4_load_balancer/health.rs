//! How servers are, as connections show it.

use super::services::{Protocol, Services};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::net::SocketAddr;
use weir_nf::Merge;
use weir_nf::headers::proto;

/// How a server failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    /// It answered a SYN with a reset.
    Refused,
    /// It did not answer a SYN within a second.
    TimedOut,
    /// An ICMP error said that it cannot be reached.
    Unreachable,
}

/// What is known of a server of a service.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Server {
    /// Protocol of the service.
    pub proto: Protocol,
    /// The service.
    pub service: SocketAddr,
    /// The server.
    pub server: SocketAddr,
    /// Flows that it was given.
    pub flows: u64,
    /// Connections that it refused.
    pub refused: u64,
    /// SYNs that were unanswered a second later.
    pub timed_out: u64,
    /// ICMP errors that said that it cannot be reached.
    pub unreachable: u64,
    /// How often it was taken out.
    pub taken_out: u64,
    /// Failures since it answered last.
    pub failures: u32,
    /// While it is out: until when it gets no connection, in nanoseconds of packet time; 0 otherwise.
    pub out_until_ns: u64,
    /// When a connection that it had not answered before was answered last; 0: never.
    #[serde(skip)]
    answered_ns: u64,
    /// It is out, and has a connection as a trial.
    #[serde(skip)]
    is_tried: bool,
}

impl Server {
    fn name(&self) -> (Protocol, SocketAddr, SocketAddr) {
        (self.proto, self.service, self.server)
    }
}

/// Between two trials of a server that is out, in nanoseconds.
const TRIAL_NS: u64 = 1_000_000_000;

/// What was done, and how servers are.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Balanced {
    /// Packets to servers.
    pub there: u64,
    /// Packets from servers.
    pub back: u64,
    /// Of these, ICMP errors.
    pub errors: u64,
    /// Packets that are for no service, or of none.
    pub passed: u64,
    /// Packets that found no server.
    pub unavailable: u64,
    /// Servers; those that the configuration does not name any more are left out.
    pub servers: Vec<Server>,
    /// Whose servers these are.
    #[serde(skip)]
    of: u64,
}

impl Balanced {
    /// Lists the servers of `services` from now on.
    #[inline]
    pub(super) fn follow(&mut self, services: &Services) {
        if self.of != services.print {
            self.list(services);
        }
    }

    #[cold]
    fn list(&mut self, services: &Services) {
        let old = std::mem::take(&mut self.servers).into_iter();
        let mut old: HashMap<_, _> = old.map(|server| (server.name(), server)).collect();
        self.servers.extend(services.entries().iter().map(|entry| {
            match old.remove(&(entry.proto, entry.service, entry.server)) {
                Some(known) => known,
                None => Server {
                    proto: entry.proto,
                    service: entry.service,
                    server: entry.server,
                    flows: 0,
                    refused: 0,
                    timed_out: 0,
                    unreachable: 0,
                    taken_out: 0,
                    failures: 0,
                    out_until_ns: 0,
                    answered_ns: 0,
                    is_tried: false,
                },
            }
        }));
        self.of = services.print;
    }

    /// True unless it is out.
    #[inline]
    pub(super) fn is_well(&self, place: usize, failures: u32) -> bool {
        failures == 0 || self.servers.get(place).is_none_or(|s| s.out_until_ns == 0)
    }

    /// Whether it may be given a connection: if it is out, one as a trial each second when it has been out long enough, if this one
    /// `may_try`. Who takes datagrams need not answer: after a second in which nothing said that he cannot be reached he is well,
    /// until the next failure.
    #[inline]
    pub(super) fn may_take(
        &mut self,
        place: usize,
        may_try: bool,
        failures: u32,
        now_ns: u64,
        proto: u8,
    ) -> bool {
        if self.is_well(place, failures) {
            return true;
        }
        let Some(server) = self.servers.get_mut(place) else { return false };
        let is_trial = may_try && now_ns >= server.out_until_ns;
        if is_trial && server.is_tried && proto == proto::UDP {
            (server.failures, server.out_until_ns) = (failures.saturating_sub(1), 0);
            server.is_tried = false;
        } else if is_trial {
            server.is_tried = true;
            server.out_until_ns = now_ns.saturating_add(TRIAL_NS);
        }
        is_trial
    }

    /// It was given a flow.
    #[inline]
    pub(super) fn given(&mut self, place: usize) {
        if let Some(server) = self.servers.get_mut(place) {
            server.flows += 1;
        }
    }

    /// It answered: it is well.
    #[inline]
    pub(super) fn answered(&mut self, place: usize, now_ns: u64) {
        if let Some(server) = self.servers.get_mut(place) {
            (server.failures, server.out_until_ns) = (0, 0);
            (server.answered_ns, server.is_tried) = (now_ns, false);
        }
    }

    /// It failed what was sent to it at `sent_ns`; after `failures` of them in a row it is out for `cool_down_ns`. If it has answered
    /// others since then it is well, and that this one was not answered is the asker's own fault: who asks chooses whether he can be
    /// answered.
    pub(super) fn fail(
        &mut self,
        place: usize,
        fault: Fault,
        sent_ns: u64,
        (failures, cool_down_ns): (u32, u64),
        now_ns: u64,
    ) {
        let Some(server) = self.servers.get_mut(place) else { return };
        match fault {
            Fault::Refused => server.refused += 1,
            Fault::TimedOut => server.timed_out += 1,
            Fault::Unreachable => server.unreachable += 1,
        }
        if server.answered_ns > 0 && server.answered_ns >= sent_ns {
            return;
        }
        server.is_tried = false;
        server.failures = server.failures.saturating_add(1);
        if failures > 0 && server.failures >= failures {
            server.taken_out += u64::from(server.out_until_ns == 0);
            // Never 0, which means that it is well.
            server.out_until_ns = now_ns.saturating_add(cool_down_ns).max(1);
        }
    }
}

impl Merge for Balanced {
    fn merge(&mut self, other: Self) {
        self.there += other.there;
        self.back += other.back;
        self.errors += other.errors;
        self.passed += other.passed;
        self.unavailable += other.unavailable;
        let mut places: HashMap<_, _> =
            self.servers.iter().enumerate().map(|(place, server)| (server.name(), place)).collect();
        for theirs in other.servers {
            let place = *places.entry(theirs.name()).or_insert(self.servers.len());
            let Some(ours) = self.servers.get_mut(place) else {
                self.servers.push(theirs);
                continue;
            };
            ours.flows += theirs.flows;
            ours.refused += theirs.refused;
            ours.timed_out += theirs.timed_out;
            ours.unreachable += theirs.unreachable;
            ours.taken_out += theirs.taken_out;
            if theirs.out_until_ns > ours.out_until_ns {
                (ours.failures, ours.out_until_ns) = (theirs.failures, theirs.out_until_ns);
            }
        }
        // Some may not be in their places: they are looked for.
        self.of = 0;
    }
}
