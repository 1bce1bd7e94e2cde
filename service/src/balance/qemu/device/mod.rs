//! The device by which a guest of QEMU is resized.
//!
//! virtio-mem plugs and unplugs whole blocks of its memory. `requested-size` is the host's wish, `size` what the guest's
//! driver made of it: a driver that finds no block that it can free unplugs less, or nothing, and tries again later.
//!
//! Source: QEMU `hw/virtio/virtio-mem.c`, `qapi/machine.json`.

use serde_json::{Value, json};

use super::super::ActuatorError;
use super::super::ledger::LedgerDevice;
use super::{execute_command, short};
use ksmith_host::guests::{QmpMonitor, total_memory};

/// The granule of a balloon's resizes. The driver itself moves pages of 4 KiB.
const STEP: u64 = 1 << 20;

/// The most attempts to read a size that does not change meanwhile.
const TURNS: usize = 8;

/// The device of one guest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ResizeDevice {
    /// A virtio balloon, or none: QEMU says what is missing when it is asked for its size.
    Balloon,
    /// A virtio-mem device that the operator gave memory.
    VirtioMem {
        /// Its path in QEMU's object tree.
        path: String,
        /// The granule of resizes.
        block_bytes: u64,
    },
}

impl ResizeDevice {
    /// Finds the device of a guest: the one by which memory was `taken`, if any, so that the same one gives it back. A
    /// virtio-mem that was requested to have nothing has nothing to give.
    ///
    /// # Errors
    /// QEMU does not answer: another device than before would be taken for the guest's.
    pub fn find(monitor: &mut dyn QmpMonitor, taken: Option<&LedgerDevice>) -> Result<Self, ActuatorError> {
        if taken == Some(&LedgerDevice::VirtioBalloon) {
            return Ok(Self::Balloon);
        }
        let path = match taken {
            Some(LedgerDevice::VirtioMem(path)) => match read_property(monitor, path, "size") {
                Ok(_) => Some(path.clone()),
                // An operator may have unplugged it since.
                Err(ActuatorError::Refused { .. }) => find_device(monitor, "virtio-mem")?,
                Err(error) => return Err(error),
            },
            _ => find_device(monitor, "virtio-mem")?,
        };
        let Some(path) = path else { return Ok(Self::Balloon) };
        let block_bytes = read_property(monitor, &path, "block-size")?;
        let requested = read_property(monitor, &path, "requested-size")?;
        if block_bytes == 0 || requested == 0 {
            return Ok(Self::Balloon);
        }
        Ok(Self::VirtioMem { path, block_bytes })
    }

    /// Returns the device for an entry of the ledger.
    pub fn to_ledger(&self) -> LedgerDevice {
        match self {
            Self::Balloon => LedgerDevice::VirtioBalloon,
            Self::VirtioMem { path, .. } => LedgerDevice::VirtioMem(path.clone()),
        }
    }

    /// The mechanism's name in columns and JSON.
    pub fn way(&self) -> &'static str {
        match self {
            Self::Balloon => "virtio-balloon",
            Self::VirtioMem { .. } => "virtio-mem",
        }
    }

    /// The granule of resizes.
    pub fn step_bytes(&self) -> u64 {
        match self {
            Self::Balloon => STEP,
            Self::VirtioMem { block_bytes, .. } => *block_bytes,
        }
    }

    /// Queries the memory that the guest has, by QEMU's count.
    pub fn given_bytes(&self, monitor: &mut dyn QmpMonitor) -> Result<u64, ActuatorError> {
        match self {
            Self::Balloon => balloon_bytes(monitor),
            Self::VirtioMem { .. } => {
                let told = execute_command(monitor, "query-memory-size-summary", json!({}))?;
                total_memory(&told).ok_or_else(|| ActuatorError::Nonsense(short(&told)))
            }
        }
    }

    /// Queries the memory that the guest is to have before anything is taken: of a virtio-mem what was requested, which
    /// a guest that still boots does not have yet.
    pub fn whole_bytes(&self, monitor: &mut dyn QmpMonitor) -> Result<u64, ActuatorError> {
        match self {
            Self::Balloon => self.given_bytes(monitor),
            Self::VirtioMem { path, .. } => {
                let (others, size) = self.others_bytes(monitor, path)?;
                let requested = read_property(monitor, path, "requested-size")?;
                Ok(others.saturating_add(requested.max(size)))
            }
        }
    }

    /// Sets the memory that the guest is to have. Returns at once.
    pub fn set_target(&self, monitor: &mut dyn QmpMonitor, to: u64) -> Result<(), ActuatorError> {
        match self {
            Self::Balloon => execute_command(monitor, "balloon", json!({ "value": to }))?,
            Self::VirtioMem { path, .. } => {
                let (others, _) = self.others_bytes(monitor, path)?;
                let wanted =
                    json!({ "path": path, "property": "requested-size", "value": to.saturating_sub(others) });
                execute_command(monitor, "qom-set", wanted)?
            }
        };
        Ok(())
    }

    /// Rounds down to whole steps, except for the whole: a guest gets its last part back even if that is no step. Of a
    /// virtio-mem one block stays, by which ksmith knows that it is in use.
    pub fn rounded(&self, monitor: &mut dyn QmpMonitor, to: u64, whole: u64) -> Result<u64, ActuatorError> {
        match self {
            _ if to >= whole => Ok(whole),
            Self::Balloon => Ok((to / STEP * STEP).max(STEP).min(whole)),
            Self::VirtioMem { path, block_bytes } => {
                let (others, _) = self.others_bytes(monitor, path)?;
                let blocks = to.saturating_sub(others) / block_bytes;
                Ok(others.saturating_add(blocks.max(1).saturating_mul(*block_bytes)).min(whole))
            }
        }
    }

    /// Rounds up so that the difference to `now` is whole steps of a device that knows no others.
    pub fn rounded_up(&self, to: u64, now: u64) -> u64 {
        match self {
            Self::Balloon => to,
            Self::VirtioMem { block_bytes, .. } => now - now.saturating_sub(to) / block_bytes * block_bytes,
        }
    }

    /// Queries the memory that the guest has besides this virtio-mem, and its size. The driver may plug blocks between
    /// two queries: then they are made again.
    fn others_bytes(&self, monitor: &mut dyn QmpMonitor, path: &str) -> Result<(u64, u64), ActuatorError> {
        let mut size = read_property(monitor, path, "size")?;
        for _ in 0..TURNS {
            let given = self.given_bytes(monitor)?;
            let after = read_property(monitor, path, "size")?;
            if after == size {
                return Ok((given.saturating_sub(size), size));
            }
            size = after;
        }
        Err(ActuatorError::Nonsense(format!("the size of {path} changes all the time")))
    }
}

fn read_property(monitor: &mut dyn QmpMonitor, path: &str, property: &str) -> Result<u64, ActuatorError> {
    let told = execute_command(monitor, "qom-get", json!({ "path": path, "property": property }))?;
    told.as_u64().ok_or_else(|| ActuatorError::Nonsense(short(&told)))
}

/// Queries the memory that a balloon leaves the guest.
fn balloon_bytes(monitor: &mut dyn QmpMonitor) -> Result<u64, ActuatorError> {
    let told = match execute_command(monitor, "query-balloon", json!({})) {
        Err(ActuatorError::Refused { why, .. }) => {
            return Err(ActuatorError::Unable(format!(
                "QEMU says {why:?}: start it with -device virtio-balloon-pci, and with the driver in the guest"
            )));
        }
        told => told?,
    };
    told.get("actual").and_then(Value::as_u64).ok_or_else(|| ActuatorError::Nonsense(short(&told)))
}

/// Finds the path of a device of this kind, which may have an id or not. A QEMU that refuses to list has none.
pub(super) fn find_device(monitor: &mut dyn QmpMonitor, wanted: &str) -> Result<Option<String>, ActuatorError> {
    for place in ["/machine/peripheral", "/machine/peripheral-anon"] {
        let list = match execute_command(monitor, "qom-list", json!({ "path": place })) {
            Err(ActuatorError::Refused { .. }) => continue,
            list => list?,
        };
        let name_of = |child: &Value| {
            let is_wanted = child.get("type")?.as_str()?.contains(wanted);
            is_wanted.then(|| child.get("name")?.as_str().map(str::to_owned))?
        };
        if let Some(name) = list.as_array().and_then(|children| children.iter().find_map(name_of)) {
            return Ok(Some(format!("{place}/{name}")));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests;
