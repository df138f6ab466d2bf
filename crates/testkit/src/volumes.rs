//! Volumes in memory that answer when they are told to.

use std::collections::VecDeque;

use block::{
    Buffer, ByteCount, Completion, DiskId, Extent, Memory, Operation, Outcome, Request, Sought,
    Submit, VolumeId,
};

/// Requests that wait to be answered, in the order in which they came. Each volume lies on the disk
/// of its number.
#[derive(Debug, Default)]
pub struct Below {
    pub held: VecDeque<(VolumeId, Request)>,
    /// Whether all that is read is said to lie in memory that lends, whatever memory says.
    pub lends: bool,
    /// Whether memory that lends takes writes at once.
    pub lands: bool,
    /// What has landed.
    pub landed: Vec<(VolumeId, ByteCount)>,
}

impl Submit for Below {
    fn submit(&mut self, volume: VolumeId, request: Request) {
        self.held.push_back((volume, request));
    }

    fn find_loan(
        &mut self,
        volume: VolumeId,
        extent: Extent,
        memory: &dyn Memory,
    ) -> Option<(DiskId, Extent)> {
        let disk = DiskId(volume.0);
        (self.lends || memory.can_lend(disk, extent)).then_some((disk, extent))
    }

    fn find_landing(
        &mut self,
        volume: VolumeId,
        extent: Extent,
        memory: &dyn Memory,
    ) -> Option<(DiskId, Extent)> {
        self.find_loan(volume, extent, memory).filter(|_| self.lands)
    }

    fn landed(&mut self, volume: VolumeId, _: DiskId, length: ByteCount) {
        self.landed.push((volume, length));
    }
}

/// Answers a request to a volume of these bytes: carries it out if it is to be done, else does
/// nothing with it.
pub fn perform(
    volume: &mut [u8],
    mut request: Request,
    mut outcome: Outcome,
    memory: &mut dyn Memory,
) -> Completion {
    match &mut request.operation {
        Operation::Read { buffer, .. } if !outcome.is_done() => memory.materialize(buffer),
        _ if !outcome.is_done() => {}
        Operation::Read { extent, buffer } => {
            assert_eq!(u64::from(buffer.phase()), extent.offset.0 % 4096);
            memory.write(buffer, 0, part(volume, extent));
        }
        Operation::Write { extent, buffer, .. } => {
            assert_eq!(u64::from(buffer.phase()), extent.offset.0 % 4096);
            memory.read(buffer, 0, part(volume, extent));
        }
        Operation::Compare { extent, buffer } => {
            outcome = compare(part(volume, extent), buffer, memory);
        }
        Operation::CompareAndWrite { extent, expected, replacement, .. } => {
            outcome = compare(part(volume, extent), expected, memory);
            if outcome.is_done() {
                memory.read(replacement, 0, part(volume, extent));
            }
        }
        Operation::WriteZeroes { extent, .. } => part(volume, extent).fill(0),
        Operation::Discard { extents } => {
            extents.iter().for_each(|extent| part(volume, extent).fill(0));
        }
        Operation::Seek { extent, sought } => {
            outcome = seek(volume, *extent, *sought);
        }
        Operation::Flush | Operation::Verify { .. } => {}
    }
    request.complete(outcome)
}

fn part<'a>(volume: &'a mut [u8], extent: &Extent) -> &'a mut [u8] {
    &mut volume[extent.offset.0 as usize..extent.end().0 as usize]
}

/// A page of zeros is a hole.
fn seek(volume: &[u8], extent: Extent, sought: Sought) -> Outcome {
    let (from, end) = (extent.offset.0 as usize, extent.end().0 as usize);
    let pages = volume[..end].chunks(4096).enumerate().skip(from / 4096);
    let is_sought = |page: &[u8]| page.iter().all(|&byte| byte == 0) == (sought == Sought::Hole);
    let found = pages.filter(|(_, page)| is_sought(page)).map(|(index, _)| index * 4096).next();
    found.map_or(Outcome::Done, |at| Outcome::Found(at.saturating_sub(from) as u32))
}

fn compare(ours: &[u8], buffer: &Buffer, memory: &dyn Memory) -> Outcome {
    let mut theirs = vec![0; ours.len()];
    memory.read(buffer, 0, &mut theirs);
    let differs = ours.iter().zip(&theirs).position(|(a, b)| a != b);
    differs.map_or(Outcome::Done, |at| Outcome::Miscompare(at as u32))
}
