//! The one list of all clauses; whatever runs, names or counts them is made from it.

/// Makes one `#[test]` per clause for a [`Harness`](crate::Harness): how a store joins.
///
/// A store cannot leave a clause out, and gets each new one by itself. For two
/// harnesses in one file put each line into a module of its own. Where the server cannot
/// be had on most machines, `conformance!(Mine, ignore = "why")` leaves all clauses for
/// `cargo test -- --ignored`, and the runner counts them as ignored.
#[macro_export]
macro_rules! conformance {
    ($harness:ty) => {
        $crate::__clauses!(__tests $harness, cfg(test));
    };
    ($harness:ty, ignore = $reason:literal) => {
        $crate::__clauses!(__tests $harness, ignore = $reason);
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __tests {
    ([$harness:ty, $attribute:meta] $($module:ident { $($clause:ident)* })*) => {
        $($(
            #[test]
            #[$attribute]
            fn $clause() {
                $crate::run::<$harness>(stringify!($clause));
            }
        )*)*
    };
}

/// Hands the list to a macro. A function that is missing here is dead code, which this
/// crate denies; a name that is twice here makes two tests of one name, which no test
/// file can have.
#[doc(hidden)]
#[macro_export]
macro_rules! __clauses {
    (__tests $($with:tt)*) => { $crate::__clauses! { @ [$crate::__tests] [$($with)*] } };
    (dispatch) => { $crate::__clauses! { @ [dispatch] [] } };
    (@ [$($then:tt)*] $with:tt) => {
        $($then)*! {
            $with
            acquire {
                free_key_is_granted
                second_contender_is_held
                same_holder_with_another_attempt_is_held
                another_holder_with_the_same_attempt_is_held
                repeated_attempt_gives_the_same_tenure
                repeated_attempt_begins_the_term_anew
                repeated_attempt_after_release_is_a_new_tenure
                repeated_attempt_after_takeover_is_held
                keys_are_independent
            }
            race {
                two_contenders_one_is_granted
                thirty_two_contenders_one_is_granted
                contenders_for_a_released_key_one_is_granted
                contenders_for_an_ended_lease_one_is_granted
                repeated_attempt_at_once_is_one_tenure
                contended_counter_loses_no_count
                renewal_and_takeover_never_both_succeed
                release_at_once_succeeds_once
            }
            renew {
                renewal_keeps_the_tenure
                renewal_sets_the_new_term
                renewed_lease_outlives_its_first_term
                renewal_of_a_superseded_lease_names_the_successor
                renewal_after_deletion_is_lost
                renewal_after_release_is_lost
                late_renewal_of_an_earlier_tenure_changes_nothing
                renewal_by_another_holder_is_lost
                renewal_with_another_token_is_lost
                renewal_with_an_older_version_works
                renew_many_answers_in_order
                renew_many_renews_each
                renew_many_of_none_is_empty
            }
            release {
                release_frees_at_once
                second_release_is_not_held
                release_by_another_holder_is_not_held
                release_with_another_token_is_not_held
                late_release_of_an_earlier_tenure_changes_nothing
                late_release_does_not_free_the_successor
                release_after_deletion_is_not_held
                release_with_an_older_version_works
            }
            token {
                token_grows_over_release
                token_grows_over_the_end_of_a_term
                token_grows_over_deletion
                token_grows_over_deletion_after_release
                token_grows_over_change_of_holder
                token_grows_over_restart
                live_lease_survives_restart
                token_stays_over_renewal
                token_is_below_2_to_the_53
            }
            clock {
                ended_lease_is_taken_but_not_before
                renewal_after_the_end_of_the_term
                repeated_attempt_after_the_end_is_a_new_tenure
                rest_is_known_if_the_store_has_a_clock
                named_version_is_taken_if_the_store_has_no_clock
                version_that_is_not_the_present_one_is_held
                each_renewal_changes_the_version
                version_read_is_the_version_granted
                version_after_release_is_new
            }
            read {
                read_of_a_free_key_is_nobody
                read_shows_the_lease
                read_after_release_is_nobody
                read_after_deletion_is_nobody
                read_after_the_end_of_the_term
                read_changes_nothing
            }
            names {
                names_of_the_greatest_length
                names_in_any_script
                names_with_every_awkward_character
                names_differ_by_case
                names_differ_by_normal_form
                names_that_begin_alike_are_independent
            }
            ttl {
                smallest_ttl_works
                greatest_ttl_works
                ttl_outside_is_invalid_to_acquire
                ttl_outside_is_invalid_to_renew
                traits_are_sane
            }
            list {
                list_is_ordered_by_key
                list_shows_what_read_shows
                list_keeps_the_limit
                list_is_of_live_leases_only
                list_takes_the_prefix_literally
                list_of_every_awkward_prefix
            }
            watch {
                watch_pushes_an_acquire
                watch_pushes_a_release
                watch_is_of_one_key
            }
            ask {
                ask_arrives_with_the_next_renewal
                ask_stays_until_the_tenure_ends
                ask_is_gone_after_release
                ask_is_gone_after_takeover
                ask_of_a_free_key_is_not_held
                ask_disturbs_no_renewal
                ask_survives_a_repeated_attempt
            }
            cancel {
                dropped_acquire_can_be_repeated
                dropped_renewal_can_be_repeated
                dropped_calls_leave_the_store_usable
            }
        }
    };
}
