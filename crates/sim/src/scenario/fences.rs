//! What the scenario draws in which hosts of NVMe and ports of iSCSI change the reservation of one volume.
//! Units: those of [`Setup`].

use block::Random;

use super::ports;
use crate::setup::Setup;

/// See `nvme-fence` in the list.
pub(super) fn nvme(random: &mut Random, setup: &mut Setup) {
    match random.chance(1, 2) {
        true => ports::fence(random, setup),
        false => ports::fence_crash(random, setup),
    }
    setup.scsi_clients = random.chance(1, 4);
    // They work on the volume, and change who may: each is a host by both its controllers.
    setup.raw_hosts = 1 + random.below(2) as usize;
    setup.raw_resets = random.chance(1, 3);
    setup.fencer_hosts = 2 + random.below(3) as usize;
    setup.fencer_ports = random.below(4) as usize;
    setup.names_host = random.chance(1, 3);
    setup.not_stored = if random.chance(1, 3) { 100 } else { 0 };
}
