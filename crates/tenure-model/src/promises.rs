//! The promises as the checker knows them, and what must be seen at least once.

use stateright::Property;

use crate::protocol::Protocol;
use crate::setup::Setup;
use crate::world::{Answer, Ask, Phase, Stage, World};

/// At no moment do two tenures say that they are valid.
pub const ONE_AT_A_TIME: &str = "at most one valid tenure";
/// Whoever believes has the record: what is unknown is never believed.
pub const BACKED: &str = "a valid tenure is the one in the record";
/// Each tenure has a greater token than all before it.
pub const TOKENS_GROW: &str = "tokens strictly grow";
/// A late renewal or release does nothing to a later tenure.
pub const TOUCHES_ITS_OWN: &str = "renew and release touch only their own tenure";
/// The resource never goes back to an earlier tenure.
pub const FENCED: &str = "the fenced resource takes no older write";
/// A tenure ends once and for good.
pub const ENDS_FOR_GOOD: &str = "an ended tenure is never valid again";

/// The promises that hold always, then the sights that must be seen in this setup.
pub fn all<const N: usize>(setup: &Setup) -> Vec<Property<Protocol<N>>> {
    let mut properties = vec![
        Property::<Protocol<N>>::always(ONE_AT_A_TIME, |_, world| world.valid().count() <= 1),
        Property::<Protocol<N>>::always(BACKED, |_, world| {
            let has = world.record.lease.map(|(tenure, _)| tenure);
            world.valid().all(|tenure| has == Some(tenure))
        }),
        Property::<Protocol<N>>::always(TOKENS_GROW, |_, world| !world.wrong.token),
        Property::<Protocol<N>>::always(TOUCHES_ITS_OWN, |_, world| !world.wrong.touched),
        Property::<Protocol<N>>::always(FENCED, |_, world| !world.wrong.fence),
        Property::<Protocol<N>>::always(ENDS_FOR_GOOD, |_, world| !world.wrong.revived),
    ];
    properties.extend(sights(setup));
    properties
}

fn sights<const N: usize>(setup: &Setup) -> Vec<Property<Protocol<N>>> {
    let mut sights = vec![
        Property::<Protocol<N>>::sometimes("a leader is elected", |_, world| {
            world.valid().count() == 1
        }),
        Property::<Protocol<N>>::sometimes("another leads after it", |_, world| {
            world.nodes.iter().any(|node| {
                node.ended > 0
                    && node.valid().is_none()
                    && world.valid().any(|tenure| tenure.order > node.ended)
            })
        }),
        Property::<Protocol<N>>::sometimes("a renewal is confirmed in time", |_, world| {
            answers(world).any(|(phase, answer)| {
                matches!(phase, Phase::Leading { .. }) && answer == Answer::Renewed
            })
        }),
        Property::<Protocol<N>>::sometimes("a renewal is refused", |_, world| {
            answers(world).any(|(_, answer)| answer == Answer::Lost)
        }),
        Property::<Protocol<N>>::sometimes("a confirmation comes too late", |_, world| {
            answers(world)
                .any(|(phase, answer)| phase == Phase::Campaigning && answer == Answer::Renewed)
        }),
    ];
    if setup.late > 0 {
        sights.push(Property::<Protocol<N>>::sometimes(
            "a late renewal or release meets a successor",
            |_, world| late_meets_successor(world),
        ));
        sights.push(Property::<Protocol<N>>::sometimes(
            "a lease is granted that nobody knows of",
            |_, world| {
                world.record.lease.is_some_and(|(tenure, attempt)| {
                    let node = &world.nodes[usize::from(tenure.holder)];
                    node.pending.is_none()
                        && node.attempt != attempt
                        && node.valid().is_none()
                        && node.ended < tenure.order
                })
            },
        ));
    }
    if setup.writes {
        sights.push(Property::<Protocol<N>>::sometimes(
            "a write comes after one of a later tenure",
            |_, world| {
                let late = |tenure: crate::Tenure| tenure.order < world.resource.order;
                world.nodes.iter().any(|node| node.write.is_some_and(late))
            },
        ));
    }
    sights
}

fn answers<const N: usize>(world: &World<N>) -> impl Iterator<Item = (Phase, Answer)> + '_ {
    world
        .nodes
        .iter()
        .filter_map(|node| match node.pending?.stage {
            Stage::Answered(answer) => Some((node.phase, answer)),
            Stage::Asked => None,
        })
}

fn late_meets_successor<const N: usize>(world: &World<N>) -> bool {
    let Some((present, _)) = world.record.lease else {
        return false;
    };
    world.late.iter().flatten().any(|(_, ask)| match ask {
        Ask::Renew(tenure) | Ask::Release(tenure) => tenure.order < present.order,
        Ask::Acquire { .. } => false,
    })
}
