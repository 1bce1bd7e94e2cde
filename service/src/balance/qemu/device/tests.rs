use std::time::Duration;

use ksmith_host::guests::MonitorError;

use super::*;

const MIB: u64 = 1 << 20;
const BLOCK: u64 = 2 * MIB;
const PATH: &str = "/machine/peripheral/vm0";

/// An in-memory QEMU with 64 MiB and a virtio-mem, whose driver unplugs down to `stops_at`.
#[derive(Debug)]
struct FakeQemu {
    size: u64,
    requested: u64,
    stops_at: u64,
    /// True if the guest's driver runs.
    has_driver: bool,
    targets: Vec<u64>,
}

impl FakeQemu {
    fn new(size: u64) -> Self {
        Self { size, requested: size, stops_at: 0, has_driver: true, targets: Vec::new() }
    }
}

impl QmpMonitor for FakeQemu {
    fn execute(&mut self, command: &str, arguments: Value, _patience: Duration) -> Result<Value, MonitorError> {
        let refused = |why: &str| MonitorError::Refused { command: command.to_owned(), why: why.to_owned() };
        let property = arguments.get("property").and_then(Value::as_str);
        Ok(match (command, property) {
            ("query-memory-size-summary", _) => json!({ "base-memory": 64 * MIB, "plugged-memory": self.size }),
            ("qom-list", _) if arguments["path"] == "/machine/peripheral" => json!([
                { "name": "type", "type": "string" },
                { "name": "net0", "type": "child<virtio-net-pci>" },
                { "name": "vm0", "type": "child<virtio-mem-pci>" },
            ]),
            ("qom-list", _) => json!([]),
            ("qom-get", Some("block-size")) => json!(BLOCK),
            ("qom-get", Some("requested-size")) => json!(self.requested),
            ("qom-get", Some(_)) if arguments["path"] != PATH => return Err(refused("Device not found")),
            ("qom-get", Some("size")) => json!(self.size),
            ("qom-set", Some("requested-size")) => {
                let wanted = arguments["value"].as_u64().unwrap();
                if !wanted.is_multiple_of(BLOCK) {
                    return Err(refused("'requested-size' has to be multiple of 'block-size'"));
                }
                self.targets.push(wanted);
                self.requested = wanted;
                if self.has_driver {
                    self.size = if wanted < self.size { wanted.max(self.stops_at) } else { wanted };
                }
                json!({})
            }
            _ => return Err(refused("no balloon")),
        })
    }
}

fn found(qemu: &mut FakeQemu) -> ResizeDevice {
    let device = ResizeDevice::find(qemu, None).unwrap();
    assert_eq!(device, ResizeDevice::VirtioMem { path: PATH.to_owned(), block_bytes: BLOCK });
    device
}

#[test]
fn a_virtio_mem_with_memory_goes_before_the_balloon() {
    let mut qemu = FakeQemu::new(128 * MIB);
    let device = found(&mut qemu);
    assert_eq!((device.way(), device.step_bytes()), ("virtio-mem", BLOCK));
    assert_eq!(device.given_bytes(&mut qemu).unwrap(), 192 * MIB);
    qemu.requested = 0;
    assert_eq!(ResizeDevice::find(&mut qemu, None).unwrap(), ResizeDevice::Balloon, "it has nothing to give");
}

#[test]
fn memory_is_given_back_by_the_device_that_took_it() {
    let mut qemu = FakeQemu::new(128 * MIB);
    let mut found = |taken: LedgerDevice| ResizeDevice::find(&mut qemu, Some(&taken)).unwrap();
    // The operator has given the virtio-mem memory since a balloon took some.
    assert_eq!(found(LedgerDevice::VirtioBalloon), ResizeDevice::Balloon);
    let mem = ResizeDevice::VirtioMem { path: PATH.to_owned(), block_bytes: BLOCK };
    assert_eq!(found(mem.to_ledger()), mem);
    let unplugged = LedgerDevice::VirtioMem("/machine/peripheral/vm1".to_owned());
    assert_eq!(found(unplugged), mem, "the one that is left");
    for (device, json) in [
        (LedgerDevice::VirtioBalloon, r#""virtio-balloon""#),
        (mem.to_ledger(), r#"{"virtio-mem":"/machine/peripheral/vm0"}"#),
    ] {
        assert_eq!(serde_json::to_string(&device).unwrap(), json);
        assert_eq!(serde_json::from_str::<LedgerDevice>(json).unwrap(), device);
    }
}

/// A QEMU of which one answer is lost, or is something else.
struct FailsOnce(FakeQemu, Option<Result<Value, MonitorError>>);

impl QmpMonitor for FailsOnce {
    fn execute(&mut self, command: &str, arguments: Value, patience: Duration) -> Result<Value, MonitorError> {
        self.1.take().unwrap_or_else(|| self.0.execute(command, arguments, patience))
    }
}

#[test]
fn a_device_that_does_not_tell_its_size_is_not_taken_for_unplugged() {
    let garbage = || MonitorError::Garbage { path: "/qmp".into(), what: "?".to_owned() };
    let taken = LedgerDevice::VirtioMem("/machine/peripheral/vm1".to_owned());
    let find = |first| ResizeDevice::find(&mut FailsOnce(FakeQemu::new(128 * MIB), first), Some(&taken));
    assert!(find(Some(Err(garbage()))).is_err());
    assert!(find(Some(Ok(json!("much")))).is_err());
    assert!(find(None).is_ok(), "QEMU says that there is none");
}

#[test]
fn a_guest_that_still_boots_is_to_have_what_was_requested() {
    let mut qemu = FakeQemu { size: 0, has_driver: false, ..FakeQemu::new(128 * MIB) };
    let device = found(&mut qemu);
    assert_eq!(device.given_bytes(&mut qemu).unwrap(), 64 * MIB);
    assert_eq!(device.whole_bytes(&mut qemu).unwrap(), 192 * MIB);
}

#[test]
fn whole_blocks_are_requested_and_one_stays() {
    let mut qemu = FakeQemu::new(128 * MIB);
    let device = found(&mut qemu);
    let whole = device.whole_bytes(&mut qemu).unwrap();
    let mut rounded = |to: u64| device.rounded(&mut qemu, to, whole).unwrap();
    assert_eq!([u64::MAX, whole, whole - 1, 101 * MIB].map(&mut rounded), [whole, whole, whole - BLOCK, 100 * MIB]);
    assert_eq!([64 * MIB, 0].map(&mut rounded), [64 * MIB + BLOCK; 2]);
    let to = device.rounded(&mut qemu, 101 * MIB, whole).unwrap();
    device.set_target(&mut qemu, to).unwrap();
    assert_eq!((qemu.targets.as_slice(), qemu.size), (&[36 * MIB][..], 36 * MIB));
    // A reserve that is no whole block leaves the guest more, never less.
    assert_eq!(device.rounded_up(95 * MIB, 100 * MIB), 96 * MIB);
    assert_eq!(device.rounded_up(99 * MIB, 100 * MIB), 100 * MIB);
}

#[test]
fn a_target_is_reckoned_from_what_the_guest_has_besides() {
    let mut qemu = FakeQemu { stops_at: 100 * MIB, ..FakeQemu::new(128 * MIB) };
    let device = found(&mut qemu);
    device.set_target(&mut qemu, 66 * MIB).unwrap();
    let now = device.given_bytes(&mut qemu).unwrap();
    assert_eq!(now, 164 * MIB, "the driver freed no more");
    device.set_target(&mut qemu, now).unwrap();
    assert_eq!(qemu.targets, [2 * MIB, 100 * MIB], "so that it does not go on later");
}

#[test]
fn a_refusal_is_an_error_in_qemus_words() {
    let mut qemu = FakeQemu::new(128 * MIB);
    let device = found(&mut qemu);
    let refused = device.set_target(&mut qemu, 65 * MIB).unwrap_err().to_string();
    assert!(refused.contains("multiple of 'block-size'"), "{refused}");
    assert!(qemu.targets.is_empty());
}
