//! What can happen next, in every order: the model that the checker walks through.

use stateright::{Model, Property};

use crate::promises;
use crate::setup::{Break, Setup};
use crate::world::{Answer, Ask, Phase, Stage, World};

/// The protocol for `N` nodes within the bounds of a [`Setup`].
#[derive(Clone, Debug)]
pub struct Protocol<const N: usize> {
    /// The bounds.
    pub setup: Setup,
}

/// One thing that happens.
///
/// A loss before the store did what was asked is a give-up whose request never arrives;
/// a loss after it is a give-up whose answer was on its way; a pause is any stretch in
/// which a node takes no step while its clock goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action<const N: usize> {
    /// A tick of true time and of the store's clock; each node's clock goes on by so much.
    Tick([u8; N]),
    /// A node sends the request that its phase calls for.
    Send(usize),
    /// The request reaches the store, and a copy of it may come again.
    Reach {
        /// Whose.
        node: usize,
        /// Whether a copy stays under way.
        doubled: bool,
    },
    /// A request that nobody waits for reaches the store, and may come again.
    ReachLate {
        /// Which.
        place: usize,
        /// Whether a copy stays under way.
        doubled: bool,
    },
    /// The answer reaches the node.
    Receive(usize),
    /// The answer shows a lease that was granted to this process without its knowing,
    /// and the node gives it back.
    GiveBack(usize),
    /// A node waits no longer, and the request may still arrive.
    GiveUp {
        /// Who.
        node: usize,
        /// Whether the request stays under way.
        late: bool,
    },
    /// A leader gives its tenure back.
    Resign(usize),
    /// A node leaves the lease that it was giving back to run out.
    LeaveIt(usize),
    /// A process dies and starts again under the same holder.
    Crash {
        /// Whose.
        node: usize,
        /// Whether its request stays under way.
        late: bool,
    },
    /// A leader checks that it leads and sends a write to the resource.
    Write(usize),
    /// The write reaches the resource.
    WriteArrives(usize),
    /// Somebody deletes the record of an ended lease.
    Delete,
}

impl<const N: usize> Model for Protocol<N> {
    type State = World<N>;
    type Action = Action<N>;

    fn init_states(&self) -> Vec<World<N>> {
        vec![World::new(&self.setup)]
    }

    fn actions(&self, world: &World<N>, actions: &mut Vec<Action<N>>) {
        self.ticks(world, actions);
        for node in 0..N {
            self.actions_of(world, node, actions);
        }
        for place in 0..world.late.len() {
            if world.late[place].is_some() {
                for doubled in [false, true] {
                    actions.push(Action::ReachLate { place, doubled });
                }
            }
        }
        let ended = world.record.lease.is_none();
        if world.deletions > 0 && (ended || self.setup.is(Break::LiveRecordDeleted)) {
            actions.push(Action::Delete);
        }
    }

    fn next_state(&self, world: &World<N>, action: Action<N>) -> Option<World<N>> {
        let mut next = world.clone();
        self.apply(&mut next, action)?;
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        promises::all(&self.setup)
    }
}

impl<const N: usize> Protocol<N> {
    fn ticks(&self, world: &World<N>, actions: &mut Vec<Action<N>>) {
        let first = actions.len();
        actions.push(Action::Tick([1; N]));
        for (at, node) in world.nodes.iter().enumerate() {
            let steps = node.steps(&self.setup);
            let so_far = actions.len();
            for known in first..so_far {
                let Action::Tick(ticks) = actions[known] else {
                    continue;
                };
                for step in &steps[1..] {
                    let mut ticks = ticks;
                    ticks[at] = *step;
                    actions.push(Action::Tick(ticks));
                }
            }
        }
    }

    fn actions_of(&self, world: &World<N>, node: usize, actions: &mut Vec<Action<N>>) {
        let it = &world.nodes[node];
        match it.pending.map(|pending| pending.stage) {
            None => actions.push(Action::Send(node)),
            Some(Stage::Asked) => {
                for other in [false, true] {
                    let (doubled, late) = (other, other);
                    actions.push(Action::Reach { node, doubled });
                    actions.push(Action::GiveUp { node, late });
                }
            }
            Some(Stage::Answered(answer)) => {
                actions.push(Action::Receive(node));
                actions.push(Action::GiveUp { node, late: false });
                if let Answer::Held { ours: Some(_), .. } = answer {
                    actions.push(Action::GiveBack(node));
                }
            }
        }
        match it.phase {
            Phase::Leading { .. } => {
                actions.push(Action::Resign(node));
                if self.setup.writes {
                    actions.push(Action::Write(node));
                }
            }
            Phase::Releasing(_) => actions.push(Action::LeaveIt(node)),
            Phase::Campaigning => {}
        }
        if world.crashes > 0 {
            for late in [false, true] {
                actions.push(Action::Crash { node, late });
            }
        }
        if it.write.is_some() {
            actions.push(Action::WriteArrives(node));
        }
    }

    fn apply(&self, world: &mut World<N>, action: Action<N>) -> Option<()> {
        let setup = &self.setup;
        match action {
            Action::Tick(steps) => {
                world.store_tick();
                for (node, step) in world.nodes.iter_mut().zip(steps) {
                    node.tick(setup, step);
                }
            }
            Action::Send(node) => {
                let ask = world.nodes[node].next_ask(setup)?;
                world.nodes[node].send(ask);
            }
            Action::Reach { node, doubled } => self.reach(world, node, doubled)?,
            Action::ReachLate { place, doubled } => {
                let (node, ask) = world.late[place]?;
                if !doubled {
                    world.late[place] = None;
                    world.order_late();
                }
                world.execute(setup, usize::from(node), ask)?;
            }
            Action::Receive(node) => world.nodes[node].receive(setup, &mut world.wrong),
            Action::GiveBack(node) => world.nodes[node].give_back_unknown(),
            Action::GiveUp { node, late } => {
                let ask = world.nodes[node].give_up(setup);
                self.leave(world, node, ask, late)?;
            }
            Action::Resign(node) => self.resign(world, node)?,
            Action::LeaveIt(node) => world.nodes[node].phase = Phase::Campaigning,
            Action::Crash { node, late } => {
                world.crashes -= 1;
                let ask = world.nodes[node].crash();
                self.leave(world, node, ask, late)?;
            }
            Action::Write(node) => world.nodes[node].write = world.nodes[node].valid(),
            Action::WriteArrives(node) => self.write_arrives(world, node)?,
            Action::Delete => {
                world.deletions -= 1;
                world.delete(setup);
            }
        }
        Some(())
    }

    fn reach(&self, world: &mut World<N>, node: usize, doubled: bool) -> Option<()> {
        let ask = world.nodes[node].pending?.ask;
        self.leave(world, node, Some(ask), doubled)?;
        let answer = world.execute(&self.setup, node, ask)?;
        world.nodes[node].pending.as_mut()?.stage = Stage::Answered(answer);
        Some(())
    }

    fn leave(&self, world: &mut World<N>, node: usize, ask: Option<Ask>, late: bool) -> Option<()> {
        if late {
            world.leave(&self.setup, node, ask?).then_some(())
        } else {
            Some(())
        }
    }

    fn resign(&self, world: &mut World<N>, node: usize) -> Option<()> {
        let tenure = world.nodes[node].valid()?;
        if self.setup.is(Break::ReleaseBeforeEnd) {
            world.nodes[node].pending = None;
            world.nodes[node].send(Ask::Release(tenure));
        } else {
            world.nodes[node].resign(tenure);
        }
        Some(())
    }

    fn write_arrives(&self, world: &mut World<N>, node: usize) -> Option<()> {
        let write = world.nodes[node].write.take()?;
        let resource = &mut world.resource;
        if write.token >= resource.token || self.setup.is(Break::FenceLeftOut) {
            world.wrong.fence |= write.order < resource.order;
            resource.token = write.token;
            resource.order = resource.order.max(write.order);
        }
        Some(())
    }
}
