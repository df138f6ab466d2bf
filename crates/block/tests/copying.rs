//! Copies of segments against what `memmove` makes of the same bytes, for places and lengths at
//! random, with disks that lease what they read and disks that do not; the parts that are asked for;
//! and that memory is given back.

use block::limits::{COPY_PAGES, COPY_PART};
use block::{
    Buffer, ByteOffset, CopySegment, Copying, Extent, Memory, Operation, Outcome, Random, Request,
    Ticket, VolumeId,
};
use testkit::Pages;
use testkit::volumes::perform;

const VOLUME: usize = 4 << 20;

fn segment(source: (u32, u64), destination: (u32, u64), length: u64) -> CopySegment {
    CopySegment {
        source: (VolumeId(source.0), Extent::new(source.1, length)),
        destination: (VolumeId(destination.0), ByteOffset(destination.1)),
    }
}

/// Carries a copy out and says what was written where. `leases` is of each volume whether it lends
/// the pages that it reads.
fn carry_out(
    mut copying: Copying,
    volumes: &mut [Vec<u8>; 2],
    leases: [bool; 2],
    memory: &mut Pages,
) -> Vec<(VolumeId, Extent)> {
    let mut written = Vec::new();
    let mut came = Buffer::empty();
    while let Some((volume, mut operation)) = copying.go_on(came, memory) {
        let at = volume.0 as usize;
        if let Operation::Write { extent, .. } = &operation {
            written.push((volume, *extent));
        }
        if let (Operation::Read { extent, buffer }, true) = (&mut operation, leases[at]) {
            let bytes = &volumes[at][extent.offset.0 as usize..extent.end().0 as usize];
            memory.lease(buffer, bytes);
            let Operation::Read { buffer, .. } = operation else { unreachable!() };
            came = buffer;
        } else {
            let request = Request { ticket: Ticket::default(), operation };
            came = perform(&mut volumes[at], request, Outcome::Done, memory).buffer;
        }
        assert!(memory.held() as u32 <= COPY_PAGES, "{} pages are held", memory.held());
    }
    written
}

#[test]
fn segments_are_copied_in_order_and_each_as_a_whole() {
    let mut random = Random::new(13);
    for round in 0..150 {
        let mut volumes = [0, 1].map(|_| (0..VOLUME).map(|_| random.next_u64() as u8).collect());
        let mut expected: [Vec<u8>; 2] = volumes.clone();
        let durable = random.chance(1, 2);
        let mut segments = Vec::new();
        for _ in 0..=random.below(4) {
            let length = match random.below(4) {
                0 => 512 * random.below(16),
                _ => 512 * random.below(1 << 12),
            };
            let room = (VOLUME as u64 - length) / 512 + 1;
            let (from, to) = (random.below(2) as u32, random.below(2) as u32);
            let source = 512 * random.below(room);
            // Near its source, so that they overlap; and of the same place in their pages.
            let destination = match random.below(3) {
                0 => 512 * random.below(room),
                1 => (source + 512 * random.below(64)).min(512 * (room - 1)),
                _ => source.saturating_sub(4096 * random.below(9)),
            };
            segments.push(segment((from, source), (to, destination), length));
            let bytes = expected[from as usize][source as usize..][..length as usize].to_vec();
            expected[to as usize][destination as usize..][..length as usize]
                .copy_from_slice(&bytes);
        }
        let mut memory = Pages::new();
        let leases = [random.chance(1, 2), random.chance(1, 2)];
        let copying = Copying::new(segments.clone(), durable);
        let bytes: u64 = segments.iter().map(|segment| segment.source.1.length.0).sum();
        let written = carry_out(copying, &mut volumes, leases, &mut memory);
        assert!(volumes == expected, "round {round}: {segments:?}");
        assert_eq!(written.iter().map(|(_, extent)| extent.length.0).sum::<u64>(), bytes);
        assert_eq!(memory.held(), 0, "round {round}");
    }
}

#[test]
fn parts_end_where_the_destination_has_multiples_and_are_as_durable_as_asked() {
    let part = u64::from(COPY_PART);
    let segments = vec![
        segment((0, 4096), (1, part - 4096), part + 8192),
        segment((0, 0), (1, part / 2 - 512), 512 + part / 2),
    ];
    let mut memory = Pages::new();
    let mut copying = Copying::new(segments, true);
    let mut came = Buffer::empty();
    let mut asked = Vec::new();
    while let Some((_, operation)) = copying.go_on(came, &mut memory) {
        let is_write = matches!(operation, Operation::Write { .. });
        assert_eq!(operation.is_durable(), is_write);
        let extent = operation.extent().expect("it has a place");
        asked.push((extent.offset.0, extent.length.0));
        let request = Request { ticket: Ticket::default(), operation };
        came = perform(&mut vec![7; 4 << 20], request, Outcome::Done, &mut memory).buffer;
    }
    let expected = [
        (4096, 4096),
        (part - 4096, 4096),
        (8192, part),
        (part, part),
        (8192 + part, 4096),
        (2 * part, 4096),
        // They do not lie alike.
        (0, 512),
        (part / 2 - 512, 512),
        (512, part / 2),
        (part / 2, part / 2),
    ];
    assert_eq!(asked, expected);
}

#[test]
fn how_far_it_came_is_known_when_it_ends_early() {
    let part = u64::from(COPY_PART);
    let segments = vec![segment((0, 0), (1, 0), 512), segment((0, 0), (1, part), 2 * part)];
    let mut memory = Pages::new();
    let mut copying = Copying::new(segments, false);
    let mut came = Buffer::empty();
    // Both halves of the first segment and of the first part of the second.
    for step in 0..4 {
        let (_, operation) = copying.go_on(came, &mut memory).expect("it goes on");
        assert_eq!(copying.segments_done(), usize::from(step >= 2));
        let request = Request { ticket: Ticket::default(), operation };
        came = perform(&mut vec![7; 4 << 20], request, Outcome::Done, &mut memory).buffer;
    }
    let (_, operation) = copying.go_on(came, &mut memory).expect("it goes on");
    assert!(matches!(operation, Operation::Read { .. }));
    assert_eq!((copying.segments_done(), copying.bytes_done()), (1, 512 + part));
    memory.release(Buffer::empty());
}

#[test]
fn segments_of_no_bytes_are_copied_at_once() {
    let mut copying = Copying::new(vec![segment((0, 0), (1, 0), 0); 3], false);
    assert_eq!((copying.segments_done(), copying.bytes_done()), (3, 0));
    assert!(copying.go_on(Buffer::empty(), &mut Pages::new()).is_none());
    let mut none = Copying::new(Vec::new(), false);
    assert!(none.go_on(Buffer::empty(), &mut Pages::new()).is_none());
}
