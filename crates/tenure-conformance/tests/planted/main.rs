//! The suite proves itself: each planted break is caught, and each clause catches one.
#![allow(clippy::unwrap_used, reason = "a test")]

mod acquires;
mod bed;
mod names;
mod pushes;
mod reads;
mod renews;
mod tokens;

use std::collections::BTreeSet;
use std::panic::catch_unwind;

use tenure_conformance::{CLAUSES, Harness, run};

use bed::{Bed, Break};

/// Nothing is broken: whatever fails otherwise fails because of its break.
#[derive(Debug, Default)]
struct Sound<const OWN_CLOCK: bool>;

#[async_trait::async_trait]
impl<const OWN_CLOCK: bool> Break for Sound<OWN_CLOCK> {
    const OWN_CLOCK: bool = OWN_CLOCK;
}

mod sound_with_a_clock {
    tenure_conformance::conformance!(super::Bed<super::Sound<true>>);
}

mod sound_without_a_clock {
    tenure_conformance::conformance!(super::Bed<super::Sound<false>>);
}

/// Counting tokens from one is sound as long as no count is forgotten.
#[test]
fn counts_never_again() {
    for clause in CLAUSES.iter().filter(|clause| clause.starts_with("token_")) {
        run::<Bed<tokens::CountsAgain<{ tokens::NEVER }>>>(clause);
    }
}

fn assert_caught<H: Harness>(clauses: &[&str]) {
    for clause in clauses {
        let caught = catch_unwind(|| run::<H>(clause)).is_err();
        assert!(caught, "{clause} does not notice the break");
    }
}

/// One test per break, and the list of all clauses that catch one.
macro_rules! planted {
    ($($name:ident: $rule:ty => [$($clause:ident)*];)*) => {
        $(
            #[test]
            fn $name() {
                assert_caught::<Bed<$rule>>(&[$(stringify!($clause)),*]);
            }
        )*
        const CATCHING: &[&str] = &[$($(stringify!($clause),)*)*];
    };
}

#[test]
fn every_clause_catches_a_break() {
    let catching: BTreeSet<_> = CATCHING.iter().collect();
    let idle: Vec<_> = CLAUSES.iter().filter(|c| !catching.contains(c)).collect();
    assert!(idle.is_empty(), "no break is planted for {idle:#?}");
}

#[test]
#[should_panic(expected = "no clause is called")]
fn a_clause_that_is_not_there_does_not_pass() {
    run::<Bed<Sound<true>>>("no_such_clause");
}

planted! {
    grants_twice: acquires::GrantsTwice => [
        second_contender_is_held
        same_holder_with_another_attempt_is_held
        another_holder_with_the_same_attempt_is_held
        repeated_attempt_after_takeover_is_held
        two_contenders_one_is_granted
        thirty_two_contenders_one_is_granted
        contended_counter_loses_no_count
        ended_lease_is_taken_but_not_before
        live_lease_survives_restart
    ];
    checks_then_writes: acquires::ChecksThenWrites => [
        two_contenders_one_is_granted
        thirty_two_contenders_one_is_granted
        contenders_for_a_released_key_one_is_granted
        contenders_for_an_ended_lease_one_is_granted
        contended_counter_loses_no_count
    ];
    refuses_repeats: acquires::RefusesRepeats => [
        repeated_attempt_gives_the_same_tenure
        repeated_attempt_begins_the_term_anew
        repeated_attempt_at_once_is_one_tenure
        dropped_acquire_can_be_repeated
    ];
    trusts_the_name: acquires::TrustsTheName => [same_holder_with_another_attempt_is_held];
    trusts_the_number: acquires::TrustsTheNumber => [another_holder_with_the_same_attempt_is_held];
    repeats_without_new_term: acquires::RepeatsWithoutNewTerm => [
        repeated_attempt_begins_the_term_anew
    ];
    revives_tenures: acquires::RevivesTenures => [
        repeated_attempt_after_release_is_a_new_tenure
        repeated_attempt_after_the_end_is_a_new_tenure
    ];
    grants_half_the_term: acquires::GrantsHalfTheTerm => [free_key_is_granted];
    ends_early: acquires::EndsEarly => [ended_lease_is_taken_but_not_before];
    never_ends: acquires::NeverEnds => [
        ended_lease_is_taken_but_not_before
        token_grows_over_the_end_of_a_term
        read_after_the_end_of_the_term
    ];
    cuts_the_ttl: acquires::CutsTheTtl => [
        ttl_outside_is_invalid_to_acquire
        ttl_outside_is_invalid_to_renew
    ];
    rounds_the_ttl: acquires::RoundsTheTtl => [smallest_ttl_works greatest_ttl_works];
    believes_candidates: acquires::BelievesCandidates => [
        named_version_is_taken_if_the_store_has_no_clock
    ];
    does_not_compare: acquires::DoesNotCompare => [
        version_that_is_not_the_present_one_is_held
        version_after_release_is_new
        contenders_for_an_ended_lease_one_is_granted
    ];
    never_hands_over: acquires::NeverHandsOver => [
        named_version_is_taken_if_the_store_has_no_clock
        renewal_of_a_superseded_lease_names_the_successor
    ];
    renew_ignores_the_holder: renews::RenewIgnoresTheHolder => [
        renewal_by_another_holder_is_lost
        renew_many_answers_in_order
        names_differ_by_case
        names_differ_by_normal_form
    ];
    renew_ignores_the_token: renews::RenewIgnoresTheToken => [
        late_renewal_of_an_earlier_tenure_changes_nothing
        renewal_with_another_token_is_lost
    ];
    renew_brings_back: renews::RenewBringsBack => [
        renewal_after_the_end_of_the_term
        renewal_after_deletion_is_lost
        renewal_after_release_is_lost
    ];
    compares_the_version: renews::ComparesTheVersion => [
        renewal_with_an_older_version_works
        release_with_an_older_version_works
        dropped_renewal_can_be_repeated
    ];
    remembers_in_the_object: renews::RemembersInTheObject => [
        renewal_keeps_the_tenure
        token_stays_over_renewal
        renewal_with_an_older_version_works
    ];
    renew_keeps_the_ttl: renews::RenewKeepsTheTtl => [
        renewal_sets_the_new_term
        renew_many_renews_each
    ];
    renew_does_nothing: renews::RenewDoesNothing<true> => [
        renewed_lease_outlives_its_first_term
        ask_arrives_with_the_next_renewal
    ];
    renew_does_nothing_without_a_clock: renews::RenewDoesNothing<false> => [
        each_renewal_changes_the_version
    ];
    renew_raises_the_token: renews::RenewRaisesTheToken => [
        renewal_keeps_the_tenure
        token_stays_over_renewal
    ];
    loss_without_name: renews::LossWithoutName => [
        renewal_of_a_superseded_lease_names_the_successor
    ];
    renew_checks_then_writes: renews::RenewChecksThenWrites<true> => [
        renewal_and_takeover_never_both_succeed
    ];
    renew_checks_then_writes_without_a_clock: renews::RenewChecksThenWrites<false> => [
        renewal_and_takeover_never_both_succeed
    ];
    release_ignores_the_token: renews::ReleaseIgnoresTheToken => [
        late_release_of_an_earlier_tenure_changes_nothing
        release_with_another_token_is_not_held
    ];
    release_ignores_the_holder: renews::ReleaseIgnoresTheHolder => [
        release_by_another_holder_is_not_held
        names_differ_by_case
        names_differ_by_normal_form
    ];
    release_frees_anybody: renews::ReleaseFreesAnybody => [
        late_release_does_not_free_the_successor
        late_release_of_an_earlier_tenure_changes_nothing
        keys_are_independent
    ];
    release_always_says_yes: renews::ReleaseAlwaysSaysYes => [
        second_release_is_not_held
        release_after_deletion_is_not_held
        release_at_once_succeeds_once
    ];
    release_does_nothing: renews::ReleaseDoesNothing => [
        release_frees_at_once
        read_after_release_is_nobody
        renewal_after_release_is_lost
        list_is_of_live_leases_only
    ];
    many_from_the_end: renews::ManyFromTheEnd => [renew_many_answers_in_order];
    many_all_or_nothing: renews::ManyAllOrNothing => [renew_many_answers_in_order];
    many_only_some: renews::ManyOnlySome => [renew_many_renews_each renew_many_of_none_is_empty];
    counts_again_on_release: tokens::CountsAgain<{ tokens::ON_RELEASE }> => [
        token_grows_over_release
        repeated_attempt_after_release_is_a_new_tenure
        contenders_for_a_released_key_one_is_granted
    ];
    counts_again_on_the_end: tokens::CountsAgain<{ tokens::ON_THE_END }> => [
        token_grows_over_the_end_of_a_term
        ended_lease_is_taken_but_not_before
    ];
    counts_again_on_deletion: tokens::CountsAgain<{ tokens::ON_DELETION }> => [
        token_grows_over_deletion
        token_grows_over_deletion_after_release
    ];
    counts_again_on_change: tokens::CountsAgain<{ tokens::ON_CHANGE }> => [
        token_grows_over_change_of_holder
    ];
    counts_again_on_restart: tokens::CountsAgain<{ tokens::ON_RESTART }> => [
        token_grows_over_restart
    ];
    restarts_empty: tokens::RestartsEmpty => [live_lease_survives_restart];
    great_tokens: tokens::GreatTokens => [token_is_below_2_to_the_53];
    read_renews: reads::ReadRenews => [read_changes_nothing];
    read_takes: reads::ReadTakes => [read_of_a_free_key_is_nobody];
    read_remembers: reads::ReadRemembers => [
        read_after_release_is_nobody
        read_after_deletion_is_nobody
        read_after_the_end_of_the_term
    ];
    read_without_attempt: reads::ReadWithoutAttempt => [read_shows_the_lease];
    read_shows_another_version: reads::ReadShowsAnotherVersion => [
        version_read_is_the_version_granted
    ];
    rest_is_not_told: reads::RestIsWrong<true> => [rest_is_known_if_the_store_has_a_clock];
    rest_is_guessed: reads::RestIsWrong<false> => [rest_is_known_if_the_store_has_a_clock];
    strange_traits: reads::StrangeTraits => [traits_are_sane];
    hides_what_it_can: reads::HidesWhatItCan => [
        list_is_ordered_by_key
        list_shows_what_read_shows
        list_keeps_the_limit
        list_is_of_live_leases_only
        list_takes_the_prefix_literally
        list_of_every_awkward_prefix
        watch_pushes_an_acquire
        watch_pushes_a_release
        watch_is_of_one_key
        ask_arrives_with_the_next_renewal
        ask_stays_until_the_tenure_ends
        ask_is_gone_after_release
        ask_is_gone_after_takeover
        ask_of_a_free_key_is_not_held
        ask_disturbs_no_renewal
        ask_survives_a_repeated_attempt
    ];
    claims_what_it_cannot: reads::ClaimsWhatItCannot => [
        list_is_ordered_by_key
        watch_pushes_an_acquire
        ask_arrives_with_the_next_renewal
    ];
    refuses_wrongly: reads::RefusesWrongly => [
        list_is_ordered_by_key
        watch_pushes_an_acquire
        ask_arrives_with_the_next_renewal
    ];
    reuses_connections: reads::ReusesConnections => [
        dropped_acquire_can_be_repeated
        dropped_renewal_can_be_repeated
        dropped_calls_leave_the_store_usable
    ];
    keys_in_lower_case: names::ChangesKeys<{ names::LOWER_CASE }> => [names_differ_by_case];
    keys_cut: names::ChangesKeys<{ names::CUT }> => [names_of_the_greatest_length];
    keys_trimmed: names::ChangesKeys<{ names::TRIMMED }> => [
        names_with_every_awkward_character
        names_that_begin_alike_are_independent
    ];
    keys_composed: names::ChangesKeys<{ names::COMPOSED }> => [names_differ_by_normal_form];
    keys_in_ascii: names::ChangesKeys<{ names::ASCII }> => [names_in_any_script];
    keys_as_folders: names::ChangesKeys<{ names::FOLDER }> => [
        names_that_begin_alike_are_independent
    ];
    lists_without_prefix: names::ListsWrongly<{ names::WITHOUT_PREFIX }> => [
        list_takes_the_prefix_literally
        list_of_every_awkward_prefix
    ];
    lists_without_case: names::ListsWrongly<{ names::WITHOUT_CASE }> => [
        list_takes_the_prefix_literally
    ];
    lists_with_wildcards: names::ListsWrongly<{ names::WITH_WILDCARDS }> => [
        list_takes_the_prefix_literally
        list_of_every_awkward_prefix
    ];
    lists_backwards: names::ListsWrongly<{ names::BACKWARDS }> => [
        list_is_ordered_by_key
        list_keeps_the_limit
    ];
    lists_without_limit: names::ListsWrongly<{ names::WITHOUT_LIMIT }> => [list_keeps_the_limit];
    lists_without_holder: names::ListsWrongly<{ names::WITHOUT_HOLDER }> => [
        list_shows_what_read_shows
    ];
    lists_the_dead: names::ListsTheDead => [list_is_of_live_leases_only list_keeps_the_limit];
    watch_ends_at_once: pushes::WatchEndsAtOnce => [
        watch_pushes_an_acquire
        watch_pushes_a_release
    ];
    watch_ends_with_the_lease: pushes::WatchEndsWithTheLease => [watch_pushes_a_release];
    watches_too_much: pushes::WatchesTooMuch => [watch_is_of_one_key];
    ask_is_dropped: pushes::AskIsDropped => [
        ask_arrives_with_the_next_renewal
        ask_stays_until_the_tenure_ends
    ];
    ask_is_told_once: pushes::AskIsToldOnce => [ask_stays_until_the_tenure_ends];
    ask_is_for_ever: pushes::AskIsForEver => [
        ask_is_gone_after_release
        ask_is_gone_after_takeover
    ];
    ask_finds_somebody: pushes::AskFindsSomebody => [ask_of_a_free_key_is_not_held];
    ask_ends_the_lease: pushes::AskEndsTheLease => [ask_disturbs_no_renewal];
    ask_is_forgotten_by_repeats: pushes::AskIsForgottenByRepeats => [
        ask_survives_a_repeated_attempt
    ];
}
