//! Copies that a host leaves to the server: between disks of every kind, and of one that is elsewhere;
//! over iSCSI between LUNs, which are named as they name themselves.

use std::fs;

use testkit::iscsi::Said;
use testkit::iscsi::host::Order;
use wire::scsi::copy::{CopyList, CopyPlace, CopySegment, CopyStatus, CopyStatusCode};
use wire::scsi::vpd::{self, Association, CodeSet, DesignatorKind, DesignatorList, VpdPage};
use wire::scsi::{AdditionalSense, Cdb, ScsiStatus, SenseKey, ServiceAction};

use crate::common::Server;
use crate::session::{BLOCK, Session, TARGET};

const BLOCKS: u64 = (8 << 20) / BLOCK as u64;
/// LUNs, and what lies under each.
const LUNS: [(u16, &str); 4] = [(0, "file"), (1, "stripe"), (2, "ram"), (3, "elsewhere")];

/// A server with a volume of each kind, the last of which is the first of another server.
fn serve(directory: &std::path::Path, other: &str) -> Server {
    let path = |name: &str| directory.join(name).display().to_string();
    let mut config = format!(
        "[[listener]]\niscsi = \"127.0.0.1:0\"\n\
         [[disk]]\nname = \"a\"\nuri = \"file:{}\"\n\
         [[disk]]\nname = \"b\"\nuri = \"file:{}?create=5MiB\"\n\
         [[disk]]\nname = \"c\"\nuri = \"file:{}?create=5MiB\"\n\
         [[disk]]\nname = \"d\"\nuri = \"ram:8MiB\"\n\
         [[disk]]\nname = \"e\"\nuri = \"iscsi://{other}/{TARGET}/0\"\n\
         [[volume]]\nname = \"file\"\ndisks = [\"a\"]\n\
         [[volume]]\nname = \"stripe\"\nlayout = \"stripe\"\nchunk = \"64KiB\"\ndisks = [\"b\", \"c\"]\nsize = \"8MiB\"\n\
         [[volume]]\nname = \"ram\"\ndisks = [\"d\"]\n\
         [[volume]]\nname = \"elsewhere\"\ndisks = [\"e\"]\n",
        path("a.img"),
        path("b.img"),
        path("c.img"),
    );
    for (lun, volume) in LUNS {
        config += &format!(
            "[[export]]\nvolume = \"{volume}\"\n\
             iscsi = {{ target = \"{TARGET}\", lun = {lun}, hosts = \"any\" }}\n"
        );
    }
    Server::configured(directory, &config)
}

/// What a LUN calls itself, as a place of a copy.
fn place(session: &mut Session, lun: u16) -> CopyPlace {
    let code = VpdPage::DEVICE_IDENTIFICATION;
    let data = match session.ask(Order::read(lun, Cdb::vital_product_data(code.0, 255), 255), &[]) {
        Said::Data(_, data) => data,
        other => panic!("expected its names, got {other:?}"),
    };
    let names = DesignatorList::parse(vpd::body(&data, code).expect("the page")).expect("names");
    let is_naa = |name: &&vpd::Designator| name.kind == DesignatorKind::NAA;
    let naa = names.0.iter().find(is_naa).expect("an NAA").value.clone();
    CopyPlace::Identification {
        device_type: 0,
        null: false,
        relative_initiator_port: 0,
        code_set: CodeSet::BINARY,
        association: Association::LOGICAL_UNIT,
        kind: DesignatorKind::NAA,
        designator: naa,
        block_length: BLOCK,
        pad: false,
    }
}

/// Copies `blocks` between LUNs, which are places of these numbers.
fn copy(
    session: &mut Session,
    places: &[CopyPlace],
    [from, to]: [u16; 2],
    (source_lba, destination_lba, blocks): (u64, u64, u64),
) -> Said {
    let segment = CopySegment::Blocks {
        destination_counts: false,
        concatenate: false,
        source: from,
        destination: to,
        blocks: blocks as u16,
        source_lba,
        destination_lba,
    };
    let list =
        CopyList { id: 9, places: places.to_vec(), segments: vec![segment], ..CopyList::default() }
            .emit();
    let length = list.len() as u32;
    session.ask(Order::write(from, Cdb::extended_copy(length), length), &list)
}

fn read(session: &mut Session, lun: u16, lba: u64, blocks: u64) -> Vec<u8> {
    let mut all = Vec::new();
    for at in (0..blocks).step_by(256) {
        let count = (blocks - at).min(256) as u32;
        let cdb = Cdb::read_16(lba + at, count);
        let (_, bytes) = session.host.command(Order::read(lun, cdb, count * BLOCK), &[], ());
        session.send(&bytes);
        let expected = all.len() + (count * BLOCK) as usize;
        while all.len() < expected {
            match session.hear() {
                Said::Data(_, data) => all.extend(data),
                other => panic!("expected data, got {other:?}"),
            }
        }
    }
    all
}

#[test]
fn blocks_are_copied_between_disks_of_every_kind() {
    let (here, there) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let other = Server::configured(
        there.path(),
        &format!(
            "[[listener]]\niscsi = \"127.0.0.1:0\"\n[[disk]]\nname = \"d\"\nuri = \"ram:8MiB\"\n\
             [[volume]]\nname = \"v0\"\ndisks = [\"d\"]\n[[export]]\nvolume = \"v0\"\n\
             iscsi = {{ target = \"{TARGET}\", lun = 0, hosts = \"any\" }}\n"
        ),
    );
    let mut random = block::Random::new(17);
    let content: Vec<u8> =
        (0..BLOCKS * u64::from(BLOCK) / 8).flat_map(|_| random.next_u64().to_le_bytes()).collect();
    fs::write(here.path().join("a.img"), &content).unwrap();
    let server = serve(here.path(), &other.listens("iscsi"));
    let mut session = Session::log_in(&server.listens("iscsi"), 1);
    let places: Vec<CopyPlace> = LUNS.iter().map(|(lun, _)| place(&mut session, *lun)).collect();

    // Round through all of them, a little further each time, and in their pages as well.
    let mut at = 1000;
    let blocks = 5001;
    for [from, to] in [[0, 1], [1, 2], [2, 3], [3, 1], [1, 3], [3, 2], [2, 1], [1, 0]] {
        let next = at + [8, 3, 4096, 0][usize::from(to)] - 1;
        let said = copy(&mut session, &places, [from, to], (at, next, blocks));
        assert_eq!(said.status(), ScsiStatus::GOOD, "{from} to {to}: {said:?}");
        at = next;
        let copied = read(&mut session, to, at, blocks);
        let expected = &content[1000 * BLOCK as usize..][..(blocks * u64::from(BLOCK)) as usize];
        assert!(copied == expected, "{from} to {to} at {at}");
    }
    let cdb = Cdb::receive_copy_results(ServiceAction::RECEIVE_COPY_STATUS_LID1, 9, 12);
    let Said::Data(_, told) = session.ask(Order::read(1, cdb, 12), &[]) else {
        panic!("it is told")
    };
    let told = CopyStatus::parse(&told).expect("how it ended");
    assert_eq!((told.status, told.segments), (CopyStatusCode::COMPLETED, 1));
    assert_eq!(u64::from(told.transferred), blocks * u64::from(BLOCK));

    // A disk that is gone fails its part, and no other.
    drop(other);
    let said = copy(&mut session, &places, [2, 0], (0, 0, 100));
    assert_eq!(said.status(), ScsiStatus::GOOD);
}

#[test]
fn a_lun_of_another_target_is_no_place_of_a_copy() {
    let directory = tempfile::tempdir().unwrap();
    let other = "iqn.2026-11.net.plateway:other";
    let mut config = "[[listener]]\niscsi = \"127.0.0.1:0\"\n".to_owned();
    for (name, target) in [("v0", TARGET), ("v1", other)] {
        config += &format!(
            "[[disk]]\nname = \"{name}\"\nuri = \"ram:8MiB\"\n\
             [[volume]]\nname = \"{name}\"\ndisks = [\"{name}\"]\n[[export]]\nvolume = \"{name}\"\n\
             iscsi = {{ target = \"{target}\", lun = 0, hosts = \"any\" }}\n"
        );
    }
    let server = Server::configured(directory.path(), &config);
    let mut session = Session::log_in(&server.listens("iscsi"), 1);
    let mut stranger = place(&mut session, 0);
    let CopyPlace::Identification { designator, .. } = &mut stranger else { unreachable!() };
    designator[7] ^= 1;
    let places = [place(&mut session, 0), stranger];
    let said = copy(&mut session, &places, [0, 1], (0, 0, 8));
    assert_eq!(said.sense().key, SenseKey::COPY_ABORTED);
    assert_eq!(said.sense().code, AdditionalSense::COPY_TARGET_NOT_REACHABLE);
}
