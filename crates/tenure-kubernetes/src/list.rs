//! Which keys are held: the Leases of the namespace, page by page.

use serde_json::{Map, Value};
use tenure::{Key, Lease, Result};

use crate::names;
use crate::note;
use crate::record::Record;
use crate::store::KubernetesStore;

impl KubernetesStore {
    pub(crate) async fn list_pages(&self, prefix: &str, limit: usize) -> Result<Vec<Lease>> {
        let mut leases = Vec::new();
        if limit == 0 {
            return Ok(leases);
        }
        let mut from = None;
        loop {
            let page = self.link().list(from.as_deref()).await?;
            for object in page.objects {
                // What lies there under a name that no key has is nobody's lease.
                let Some(key) = key(&object) else { continue };
                if key.as_str().starts_with(prefix) {
                    leases.extend(Record::read(&key, object)?.lease());
                }
            }
            from = page.more;
            if from.is_none() {
                break;
            }
        }
        // The server's order is that of the names.
        leases.sort_by(|one, two| one.key.cmp(&two.key));
        leases.truncate(limit);
        Ok(leases)
    }
}

fn key(object: &Map<String, Value>) -> Option<Key> {
    let metadata = object.get("metadata")?;
    let name = metadata.get("name")?.as_str()?;
    if !names::is_hashed(name) {
        return names::key(name);
    }
    let note = metadata.get("annotations")?.get(note::NAME)?.as_str()?;
    let note: note::Note = serde_json::from_str(note).ok()?;
    let key = Key::new(note.key).ok()?;
    (names::name(&key) == name).then_some(key)
}
