//! One state of an object as the text that is handed out and back in.

use object_store::UpdateVersion;
use tenure::{Holder, HolderRequest, Token, Version};

/// What names one state of an object: the ETag (S3, Azure), the generation (GCS), or both.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mark {
    pub(crate) e_tag: Option<String>,
    pub(crate) version: Option<String>,
}

/// A version as it was handed out: which state, whose lease it was, and what was asked of it.
///
/// A renewal is one conditional write, without a look before it. So the version has to say
/// whose state it is: else a lease with a foreign holder and the right version would be
/// written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Stamp {
    pub(crate) mark: Mark,
    pub(crate) request: Option<HolderRequest>,
    pub(crate) token: Token,
    pub(crate) holder: String,
}

/// Stands for what a service does not tell. Parts are kept apart by spaces, which ETags
/// must not have; one that has some is written with `%20`.
const ABSENT: &str = "-";
const STEP_DOWN: &str = "step-down";

impl Mark {
    /// For the condition of a write.
    pub(crate) fn update(&self) -> UpdateVersion {
        UpdateVersion {
            e_tag: self.e_tag.clone(),
            version: self.version.clone(),
        }
    }

    /// Whether both are of one state. Some services name a generation in some answers only.
    pub(crate) fn is(&self, other: &Mark) -> bool {
        match (&self.e_tag, &other.e_tag) {
            (Some(one), Some(two)) => one == two,
            _ => self.version.is_some() && self.version == other.version,
        }
    }
}

impl Stamp {
    pub(crate) fn new(
        mark: &Mark,
        holder: &Holder,
        token: Token,
        request: Option<HolderRequest>,
    ) -> Self {
        Self {
            mark: mark.clone(),
            request,
            token,
            holder: holder.as_str().to_owned(),
        }
    }

    pub(crate) fn text(&self) -> Version {
        let part = |part: &Option<String>| match part {
            Some(part) => part.replace('%', "%25").replace(' ', "%20"),
            None => ABSENT.to_owned(),
        };
        let request = match self.request {
            Some(HolderRequest::StepDown) => STEP_DOWN,
            _ => ABSENT,
        };
        Version::new(format!(
            "{} {} {request} {} {}",
            part(&self.mark.e_tag),
            part(&self.mark.version),
            self.token,
            self.holder
        ))
    }

    /// None of a text that this store has not made.
    pub(crate) fn parse(version: &Version) -> Option<Self> {
        let mut parts = version.as_str().splitn(5, ' ');
        let mut part = || {
            let part = parts.next()?;
            let plain = || part.replace("%20", " ").replace("%25", "%");
            Some((part != ABSENT).then(plain))
        };
        let mark = Mark {
            e_tag: part()?,
            version: part()?,
        };
        let request = match part()?.as_deref() {
            None => None,
            Some(STEP_DOWN) => Some(HolderRequest::StepDown),
            Some(_) => return None,
        };
        let token = Token(part()??.parse().ok()?);
        let holder = parts.next()?.to_owned();
        Some(Self {
            mark,
            request,
            token,
            holder,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_and_back() {
        for (e_tag, version) in [
            (Some("\"abc\""), None),
            (None, Some("1234")),
            (Some("W/\"a\""), Some("9")),
            (Some("\"odd %20 one%\""), None),
        ] {
            let mark = Mark {
                e_tag: e_tag.map(str::to_owned),
                version: version.map(str::to_owned),
            };
            let holder = Holder::new(" a holder - with spaces ").unwrap();
            for request in [None, Some(HolderRequest::StepDown)] {
                let stamp = Stamp::new(&mark, &holder, Token(7), request);
                assert_eq!(Stamp::parse(&stamp.text()), Some(stamp));
            }
        }
        for text in ["", "0", "no version of this store", "a b c", "a b - x y"] {
            assert_eq!(Stamp::parse(&Version::new(text)), None, "{text}");
        }
    }

    #[test]
    fn a_missing_generation_is_no_other_state() {
        let mark = |e_tag: Option<&str>, version: Option<&str>| Mark {
            e_tag: e_tag.map(str::to_owned),
            version: version.map(str::to_owned),
        };
        assert!(mark(Some("a"), None).is(&mark(Some("a"), Some("1"))));
        assert!(mark(None, Some("1")).is(&mark(Some("a"), Some("1"))));
        assert!(!mark(Some("a"), Some("1")).is(&mark(Some("b"), Some("1"))));
        assert!(!mark(None, None).is(&mark(None, None)));
    }
}
