//! What leaders write to: one resource with a fence, and one without.

use tenure::{Fence, Token};

use crate::event::Owner;
use crate::planted::Bug;

#[derive(Debug, Default)]
pub(crate) struct Resource {
    fence: Fence,
    /// The greatest token that wrote, with or without the fence's leave.
    greatest: Token,
    last_writer: Option<(Owner, Token)>,
    /// Writes that the fence turned away.
    pub(crate) turned_away: u64,
    /// Older writes that went through where there is no fence: why one needs it.
    pub(crate) unfenced_older: u64,
    pub(crate) bug: Option<Bug>,
}

/// What became of one write to the fenced resource.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Written {
    pub(crate) accepted: bool,
    /// The greatest token that had been accepted before.
    pub(crate) greatest: Token,
    /// Who had been accepted with the greatest token.
    pub(crate) by: Option<Owner>,
}

impl Resource {
    pub(crate) fn write(&mut self, owner: Owner, token: Token) -> Written {
        let greatest = self.greatest;
        let by = self.last_writer.map(|(owner, _)| owner);
        let accepted = match self.bug {
            Some(Bug::FenceWrongWay) => token <= greatest || greatest == Token(0),
            Some(Bug::FenceRefusesEqual) => token > greatest,
            _ => self.fence.admit(token).is_ok(),
        };
        if token < greatest {
            self.unfenced_older += 1;
        }
        if accepted {
            if token >= greatest {
                self.last_writer = Some((owner, token));
            }
            self.greatest = greatest.max(token);
        } else {
            self.turned_away += 1;
        }
        Written {
            accepted,
            greatest,
            by,
        }
    }
}
