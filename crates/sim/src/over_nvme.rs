//! What a run knows of NVMe: what the target exports and to whom, raw hosts, watchers of the
//! discovery log, peers that talk garbage, another volume that takes the volume's place, and where
//! a client finds the target's namespace.

pub(crate) mod exports;
pub mod garbage;
pub mod raw_host;
pub(crate) mod swap;

use nvme::tcp::initiator::Settings;
use shard::ImportSettings;
use wire::nvme::Nqn;
use wire::nvme_tcp::Digests;

use crate::run::subsystem_name;
use crate::setup::Setup;

/// HOSTNQN of a client.
pub(crate) fn client_name(index: usize) -> Nqn {
    let name = format!("nqn.2014-08.org.nvmexpress:uuid:sim-client-{index}");
    Nqn::new(&name).expect("a valid name")
}

/// Where a client finds the target's volume.
pub(crate) fn import_settings(setup: &Setup, client: usize) -> ImportSettings {
    let mut settings = Settings::new(
        ([10, 0, 0, 1], 4420).into(),
        subsystem_name(),
        1,
        client_name(client),
        [client as u8 + 1; 16],
    );
    settings.keep_alive = core::time::Duration::from_millis(setup.keep_alive_ms);
    settings.quiesce = settings.keep_alive * 2;
    settings.queues = setup.queues;
    settings.depth = setup.depth;
    settings.digests = Digests { header: setup.digests, data: setup.digests };
    ImportSettings::NvmeTcp(settings)
}
