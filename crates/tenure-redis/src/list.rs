//! All live leases by prefix: the names by SCAN, in bounded steps, then each record.

use redis::Value;
use tenure::{ErrorKind, Key, Lease, Result};

use crate::failure;
use crate::names::pattern;
use crate::reach::Part;
use crate::said::text;
use crate::scripts;
use crate::store::RedisStore;

/// How many names one step of SCAN looks at.
const STEP: usize = 1000;
/// How many records are read together.
const READ_TOGETHER: usize = 256;

impl RedisStore {
    pub(crate) async fn list_leases(&self, prefix: &str, limit: usize) -> Result<Vec<Lease>> {
        let mut leases = Vec::new();
        if limit == 0 {
            return Ok(leases);
        }
        let keys = self.keys(prefix).await?;
        for some in keys.chunks(READ_TOGETHER) {
            let calls = some.iter().map(|key| (self.names(key), Vec::new()));
            let calls: Vec<_> = calls.collect();
            let answers = self.run_many(&scripts::READ, &calls).await;
            for ((key, (names, _)), answer) in some.iter().zip(&calls).zip(answers) {
                let found = match answer {
                    Ok(answer) if answer.word == "free" => continue,
                    Ok(answer) => answer.lease(key, names),
                    Err(error) => Err(error),
                };
                match found {
                    Ok(found) => leases.push(found.lease),
                    // It must not hide the others.
                    Err(error) if error.kind() == ErrorKind::Corrupt => {
                        tracing::warn!(key = %key, "left out of the list: {error}");
                    }
                    Err(error) => return Err(error),
                }
                if leases.len() == limit {
                    return Ok(leases);
                }
            }
        }
        Ok(leases)
    }

    /// The keys that have a record, in the order of their bytes.
    async fn keys(&self, prefix: &str) -> Result<Vec<Key>> {
        let begin = format!("{}{prefix}", self.prefix());
        let fits = pattern(&begin);
        let mut keys = Vec::new();
        for part in self.reach().parts().await? {
            let mut cursor = "0".to_owned();
            loop {
                let (next, names) = self.scan(&part, &cursor, &fits).await?;
                let names = names.iter().filter(|name| name.starts_with(&begin));
                // What is no key to us, somebody else has put there.
                keys.extend(
                    names.filter_map(|name| Key::new(name.strip_prefix(self.prefix())?).ok()),
                );
                if next == "0" {
                    break;
                }
                cursor = next;
            }
        }
        keys.sort_unstable();
        // SCAN may show a name twice.
        keys.dedup();
        Ok(keys)
    }

    async fn scan(
        &self,
        part: &Part,
        cursor: &str,
        pattern: &str,
    ) -> Result<(String, Vec<String>)> {
        let mut command = redis::cmd("SCAN");
        command.arg(cursor).arg("MATCH").arg(pattern);
        command.arg("COUNT").arg(STEP);
        let reach = self.reach();
        let said = reach.send_to(part, &command).await?;
        let value = said.map_err(|refusal| reach.refused(&refusal))?;
        let no_sense = || failure::no_sense(&reach.to_string());
        let Value::Array(both) = value else {
            return Err(no_sense());
        };
        let [cursor, Value::Array(names)] = both.as_slice() else {
            return Err(no_sense());
        };
        let cursor = text(cursor).ok_or_else(no_sense)?;
        Ok((cursor, names.iter().filter_map(text).collect()))
    }
}
