//! Memory of a real QEMU guest, unplugged and plugged again by virtio-mem.

use std::time::Duration;

use crate::support::linux::{LinuxKit, module};
use crate::support::own::on_own_host;
use crate::support::qmp::QmpClient;
use crate::support::{actuator_of, wait_until};
use ksmith_host::act::StateDir;
use ksmith_host::root::Root;
use ksmith_service::balance::MemoryLedger;
use serde_json::json;

const PATIENCE: Duration = Duration::from_secs(120);
const MIB: u64 = 1 << 20;

/// 128 MiB beside the guest's 96, by a device without an id: it must be found.
const DEVICE: [&str; 6] = [
    "-m",
    "96,maxmem=1G",
    "-object",
    "memory-backend-ram,id=pluggable,size=256M",
    "-device",
    "virtio-mem-pci,memdev=pluggable,requested-size=128M,block-size=4M",
];

#[test]
fn a_virtio_mem_gives_whole_blocks_unless_its_driver_refuses_and_gets_all_of_them_back() {
    on_own_host(|| {
        let directory = tempfile::tempdir().unwrap();
        let Some(driver) = module("virtio_mem") else { return };
        let more = [(driver, "/more/virtio_mem.ko".to_owned())];
        let Some(kit) = LinuxKit::make(directory.path(), &more) else { return };
        let mut guest = kit.start("blocks", 96, None, &DEVICE);
        assert!(guest.boot(PATIENCE), "{}", guest.console());
        let open = |ledger: &MemoryLedger| actuator_of(guest.pid(), "blocks", ledger);
        let state = || MemoryLedger::open(&StateDir::at(directory.path().join("state"))).unwrap();
        let ledger = state();
        let mut actuator = open(&ledger).unwrap();
        let (way, step) = (actuator.abilities().way, actuator.abilities().step_bytes);
        assert_eq!((way, step), ("virtio-mem", 4 * MIB));
        let look = actuator.read_figures().unwrap();
        assert_eq!((look.given_bytes, look.whole_bytes), (96 * MIB, 224 * MIB), "its driver is not loaded yet");

        // Memory that is only to be moved can be unplugged again.
        let load =
            "echo online_movable > /sys/devices/system/memory/auto_online_blocks; insmod /more/virtio_mem.ko";
        assert!(guest.run(load, PATIENCE).is_some(), "{}", guest.console());
        wait_until("the driver has plugged its blocks", || {
            actuator.read_figures().unwrap().given_bytes == 224 * MIB
        });
        // A driver that refuses: nothing is taken, now or later, and nothing is owed.
        let may_unplug = |may: &str| format!("echo {may} > /sys/module/virtio_mem/parameters/unplug_online");
        assert!(guest.run(&may_unplug("N"), PATIENCE).is_some(), "{}", guest.console());
        assert_eq!(actuator.resize(150 * MIB).unwrap(), 224 * MIB);
        let devices = QmpClient::connect(&guest.socket).execute("query-memory-devices", json!({}));
        assert_eq!(
            (devices[0]["type"].as_str(), devices[0]["data"]["requested-size"].as_u64()),
            (Some("virtio-mem"), Some(128 * MIB))
        );
        assert!(ledger.entries().is_empty());
        assert!(guest.run(&may_unplug("Y"), PATIENCE).is_some(), "{}", guest.console());

        // The driver may not free all that it is asked for, and on a busy host nothing before a resize gives up.
        let mut given = 0;
        wait_until("the driver unplugs blocks", || {
            given = actuator.resize(150 * MIB).unwrap();
            given < 224 * MIB
        });
        assert!((150 * MIB - step..224 * MIB).contains(&given), "{given}");
        assert_eq!((given - 96 * MIB) % step, 0, "{given} {step}");
        assert_eq!(actuator.read_figures().unwrap().given_bytes, given);
        assert_eq!(ledger.entries()[0].given_bytes, given);

        // Another ksmith gives it all back.
        let next = state();
        wait_until("the driver plugs all blocks again", || {
            next.restore(&Root::host(), false).notes == ["blocks has its 224 MiB again"]
        });
        assert_eq!(actuator.read_figures().unwrap().given_bytes, 224 * MIB);
        assert!(next.entries().is_empty());
        assert!(!guest.has_killed(PATIENCE), "{}", guest.console());
    });
}
