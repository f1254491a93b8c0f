//! What the simulator has found in the election, with the seed that showed it.
//!
//! All of it is mended; a test runs each seed again and fails if it ever comes back.

/// Something that was found.
#[derive(Clone, Copy, Debug)]
pub struct Finding {
    /// What was wrong, in a sentence.
    pub what: &'static str,
    /// A profile and a seed that showed it.
    pub shown_by: (&'static str, u64),
}

/// What was found, oldest first. The table in docs/proof.md says the same to people.
pub const FOUND: &[Finding] = &[
    Finding {
        what: "an elector that was stopped while an acquire was unknown freed a tenure of its own \
               whose work had not stopped: finding out did not ask whether that one runs out",
        shown_by: ("orders", 11_427),
    },
    Finding {
        what: "one that resigned asked again at once when the notice of its own last renewal \
               came after its release: a pushed record of its own ended the rest",
        shown_by: ("processes", 1_159),
    },
    Finding {
        what: "the same, in a handover that failed by it",
        shown_by: ("slow-store", 3_772),
    },
    Finding {
        what: "a leader that was pushed 'look' renewed at once: where the store pushes that for \
               every change, its own renewal made it renew again, without end",
        shown_by: ("vague-notices", 0),
    },
    Finding {
        what: "the stated worst case of a failover left out that a renewal and an answer may \
               be on their way: where calls take almost as long as they may, it was passed",
        shown_by: ("slow-store", 527),
    },
    Finding {
        what: "a renewal interval shorter than a call may take passed Timing::check, and one hung \
               call cost the leadership: the next renewal waits for the answer to the last",
        shown_by: ("slow-store", 1_813),
    },
    Finding {
        what: "a renewal that was given up after its tenure had ended by a resignation cut the \
               rest short",
        shown_by: ("orders", 2_283),
    },
    Finding {
        what: "one that resigned took the lease back when the record of a leader before it was \
               pushed late: a record of another ended the rest, however old it was",
        shown_by: ("everything", 7_140_299_843),
    },
];
