//! Which events are counted, under which names? One group per concern. Pure: no I/O.

use crate::metrics::Counter;

const ACQUIRED: &[&str] = &["preferred", "handover", "takeover", "fallback", "adopted"];
const RELEASED: &[&str] = &["rebalance", "drain", "shutdown", "paused", "removed"];
const LOST: &[&str] = &["expired", "taken", "gone"];

/// Grants, renewals and ends of leases.
#[derive(Debug)]
pub(super) struct LeaseCounters {
    pub(super) acquired: Counter,
    pub(super) refused: Counter,
    pub(super) failed: Counter,
    pub(super) renewed: Counter,
    pub(super) doubted: Counter,
    pub(super) lost: Counter,
    pub(super) released: Counter,
    pub(super) reclaimed: Counter,
}

impl Default for LeaseCounters {
    fn default() -> Self {
        let (by, plain) = (Counter::by, Counter::plain);
        Self {
            acquired: by("leasehold_leases_acquired_total", "Leases granted.", "reason", ACQUIRED),
            refused: plain("leasehold_leases_refused_total", "Attempts that another won."),
            failed: plain("leasehold_leases_failed_total", "Attempts that could not be asked."),
            renewed: plain("leasehold_leases_renewed_total", "Renewals of leases that went well."),
            doubted: plain(
                "leasehold_leases_doubted_total",
                "Renewals of leases without an answer; the endpoint pauses until there is one.",
            ),
            lost: by(
                "leasehold_leases_lost_total",
                "Leases ended against our will.",
                "reason",
                LOST,
            ),
            released: by("leasehold_leases_released_total", "Leases given up.", "reason", RELEASED),
            reclaimed: plain(
                "leasehold_leases_reclaimed_total",
                "Leases put back after the store had forgotten them.",
            ),
        }
    }
}

/// Polls and their results.
#[derive(Debug)]
pub(super) struct PollCounters {
    pub(super) ended: Counter,
    pub(super) skipped: Counter,
    pub(super) deferred: Counter,
    pub(super) fenced: Counter,
    pub(super) unpublished: Counter,
    pub(super) light: Counter,
}

impl Default for PollCounters {
    fn default() -> Self {
        let (by, plain) = (Counter::by, Counter::plain);
        Self {
            ended: by("leasehold_polls_total", "Polls.", "result", &["ok", "failed", "aborted"]),
            skipped: plain("leasehold_polls_skipped_total", "Polls that came a round too late."),
            deferred: plain(
                "leasehold_polls_deferred_total",
                "Polls put off because this process lacked something: descriptors, threads, memory, ports.",
            ),
            fenced: plain(
                "leasehold_results_fenced_total",
                "Results refused because the lease was no longer ours.",
            ),
            unpublished: plain(
                "leasehold_results_unpublished_total",
                "Results that could not be stored.",
            ),
            light: plain(
                "leasehold_endpoints_light_total",
                "Endpoints that failed so often that they are polled less.",
            ),
        }
    }
}

/// The store, as this instance sees it.
#[derive(Debug)]
pub(super) struct StoreCounters {
    pub(super) hold_offs: Counter,
    pub(super) epochs: Counter,
    pub(super) outages: Counter,
    pub(super) clock_steps: Counter,
}

impl Default for StoreCounters {
    fn default() -> Self {
        let plain = Counter::plain;
        Self {
            hold_offs: plain(
                "leasehold_store_hold_offs_total",
                "Times for which the store granted nothing.",
            ),
            epochs: plain(
                "leasehold_store_epoch_changes_total",
                "Changes of the store's epoch: it lost its memory, was replaced, or its clock stepped.",
            ),
            outages: plain("leasehold_store_outages_total", "Times the store was out of reach."),
            clock_steps: plain(
                "leasehold_store_clock_steps_total",
                "Times the store's clock ran ahead of ours.",
            ),
        }
    }
}

/// Other instances, and sessions.
#[derive(Debug)]
pub(super) struct FleetCounters {
    pub(super) invalid: Counter,
    pub(super) joined: Counter,
    pub(super) left: Counter,
    pub(super) revoked: Counter,
    pub(super) revoked_itself: Counter,
}

impl Default for FleetCounters {
    fn default() -> Self {
        let (by, plain) = (Counter::by, Counter::plain);
        Self {
            revoked: by(
                "leasehold_instances_revoked_total",
                "Other instances that this one revoked, because they looked dead.",
                "reason",
                &["heartbeat", "subscriber"],
            ),
            revoked_itself: plain(
                "leasehold_revoked_total",
                "Times this instance was revoked and came back.",
            ),
            invalid: plain(
                "leasehold_sessions_invalid_total",
                "Sessions that were not understood, once for each change.",
            ),
            joined: plain("leasehold_instances_joined_total", "Other instances that came."),
            left: plain("leasehold_instances_left_total", "Other instances that went."),
        }
    }
}
