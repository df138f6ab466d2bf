//! Disks in a stripe: a system that is as many disks like its own as its plan or its load says.
//!
//! Only memory of the lab's own making is there as often as one likes, so only a `disk` or a `serve` of
//! memory may be several. One disk is the disk as it is; of two or more each has a label in its first MiB,
//! and the rest of them, in whole chunks, is one volume. Units: bytes. Errors: the mistakes of a plan, each
//! at its place.

use toml::Spanned;

use super::axes::{Written, pick};
use super::check::Checker;
use super::low::{LowLoad, LowSystem};
use super::model::{Backing, Load, Means, System};
use super::words;
use crate::mistake::{Mistake, Span};

/// The most disks of a stripe: the sockets of two servers full of SSDs.
const DISKS_MAX: u64 = 64;
/// What a member's label takes of it.
pub const STRIPE_LABEL_BYTES: u64 = 1 << 20;
/// How much lies on a disk before the next one's turn.
pub const STRIPE_CHUNK_BYTES: u64 = 64 << 10;

/// The values of `disks`; `None` if one is wrong, `Some(None)` if there are none.
type OfStripes = Option<Option<Vec<Option<u32>>>>;

impl System {
    /// Whether there can be several disks like its own.
    pub fn may_be_several(&self) -> bool {
        let is_made = matches!(self.means, Means::Disk { .. } | Means::Serve(_));
        // Of one that is reached by its URI the size is not known.
        is_made && self.backing == Some(Backing::Ram) && self.bytes.is_some()
    }

    /// How many disks it has under a load.
    pub fn disks_under(&self, load: &Load) -> u32 {
        load.disks.filter(|_| self.may_be_several()).unwrap_or(self.disks)
    }

    /// How large it is under a load, if that is known.
    pub fn bytes_under(&self, load: &Load) -> Option<u64> {
        let bytes = self.bytes?;
        Some(match self.disks_under(load) {
            1 => bytes,
            disks => {
                let rest = bytes.saturating_sub(STRIPE_LABEL_BYTES);
                (rest - rest % STRIPE_CHUNK_BYTES).saturating_mul(disks.into())
            }
        })
    }
}

impl Checker<'_> {
    /// How many disks a system says that it has.
    pub(super) fn disks(&mut self, low: &LowSystem) -> Option<u32> {
        match &low.disks {
            Some(_) => self.number(&low.disks, "disks", 1..=DISKS_MAX).map(|disks| disks as u32),
            None => Some(1),
        }
    }

    /// Refuses several disks of a system of which there is but one.
    pub(super) fn is_several(&mut self, low: &LowSystem, system: &System) -> bool {
        let Some(written) = low.disks.as_ref().filter(|_| !system.may_be_several()) else {
            return true;
        };
        self.push(not_several(written.span(), &system.name));
        false
    }

    /// Whether one of these systems may be several disks, as far as is known.
    pub(super) fn has_several(&self, systems: &[usize]) -> bool {
        let known = |at: &usize| self.systems[*at].thing.as_ref();
        systems.iter().any(|at| known(at).is_none_or(System::may_be_several))
    }

    /// How many disks a load is for: refused where a table has no system that may be several, and not taken
    /// from `[load]` there.
    pub(super) fn of_stripes(
        &mut self,
        own: &LowLoad,
        usual: &LowLoad,
        has_several: bool,
    ) -> OfStripes {
        if !has_several {
            if let Some(Written { span, .. }) =
                own.written().into_iter().find(|written| written.key == "disks")
            {
                let message = "disks: expected a system that is a disk or a serve of memory, seen none in this table";
                let help = "leave it out, or disk = \"ram:64MiB\"";
                self.push(Mistake::new(span, message).help(help));
            }
            return Some(None);
        }
        self.axis(pick(&own.disks, &usual.disks), "disks", |text| {
            words::number(text, 1..=DISKS_MAX).map(|disks| Some(disks as u32))
        })
    }

    /// Refuses loads of several disks for a system of which there is but one.
    pub(super) fn are_several(
        &mut self,
        systems: &[usize],
        loads: &[Load],
        table: &Span,
        [own, usual]: [&LowLoad; 2],
    ) {
        if loads.iter().all(|load| load.disks.is_none()) {
            return;
        }
        let single = systems.iter().find_map(|at| {
            let system = self.systems[*at].thing.as_ref()?;
            // What does nothing is held beside everything.
            let is_null = system.backing == Some(Backing::Null);
            (!system.may_be_several() && !is_null).then(|| system.name.clone())
        });
        if let Some(name) = single {
            let span = pick(&own.disks, &usual.disks).map_or(table.clone(), Spanned::span);
            self.push(not_several(span, &name));
        }
    }
}

fn not_several(span: Span, name: &str) -> Mistake {
    let message = format!(
        "disks: expected a disk or a serve of memory, of which there can be several, seen {name:?}"
    );
    Mistake::new(span, message).help("leave it out, or disk = \"ram:64MiB\"")
}

#[cfg(test)]
mod tests {
    use super::super::Measure;
    use super::super::tests::good;
    use super::*;

    const PLAN: &str = "name = \"stripes\"\ndifference = \"10%\"\n\
        [[system]]\nname = \"ssd\"\ndisk = \"model:ssd,ram:16MiB\"\n\
        [[system]]\nname = \"far\"\nserve = { protocol = \"nvme\", disk = \"model:ssd,ram:16MiB\" }\n\
        [[system]]\nname = \"sata\"\ndisk = \"model:hdd-5400,ram:16MiB\"\ndisks = 8\n\
        [[path]]\nname = \"lan\"\n[load]\nsize = \"8MiB\"\n";

    fn names(tables: &str) -> Vec<String> {
        let plan = good(&format!("{PLAN}{tables}"));
        plan.cells().iter().map(|cell| plan.cell_name(cell)).collect()
    }

    #[test]
    fn disks_are_an_axis_of_a_picture() {
        let names = names(
            "[[picture]]\nname = \"surface\"\nsystems = [\"ssd\"]\ndisks = [1, 12]\njobs = [1, 4]\n",
        );
        assert_eq!(
            names,
            [
                "ssd, 4KiB randread, depth 32, within 8MiB, 1 disk",
                "ssd, 4KiB randread, depth 32, within 8MiB, 12 disks",
                "ssd, 4KiB randread, depth 32, 4 jobs, within 8MiB, 1 disk",
                "ssd, 4KiB randread, depth 32, 4 jobs, within 8MiB, 12 disks",
            ]
        );
    }

    #[test]
    fn a_stripe_is_held_against_fewer_disks_and_null_stays_one() {
        let plan = good(&format!(
            "{PLAN}[[compare]]\nsystems = [\"ssd\"]\ndisks = [2, 4]\nagainst = {{ disks = 1 }}\nof = \"iops\"\n"
        ));
        let [two, four] = &plan.groups[..] else { panic!("{:?}", plan.groups) };
        assert_eq!(
            two.plan.comparisons[0].name,
            "IOPS of ssd against ssd (1 disk), 4KiB randread, depth 32, within 8MiB, 2 disks"
        );
        let disks = |cell: &super::super::Cell| plan.systems[cell.system].disks_under(&cell.load);
        assert_eq!(four.cells.iter().map(disks).collect::<Vec<_>>(), [1, 4, 1]);
        assert_eq!(
            plan.cell_name(&four.cells[four.null]),
            "null, 4KiB randread, depth 32, within 8MiB"
        );
    }

    #[test]
    fn reads_are_held_against_the_writes_of_the_same_trials() {
        let plan = good(&format!(
            "{PLAN}[[compare]]\nsystems = [\"ssd\"]\npattern = \"randrw=75\"\nof = \"read-iops\"\n\
             against = {{ of = \"write-iops\" }}\n"
        ));
        let group = &plan.groups[0];
        let comparison = &group.plan.comparisons[0];
        assert_eq!(
            comparison.name,
            "IOPS of reads of ssd against ssd (IOPS of writes), 4KiB randrw=75, depth 32, within 8MiB"
        );
        let [one, other] =
            [comparison.subject, comparison.reference].map(|column| group.columns[column]);
        assert_eq!((one.measure, other.measure), (Measure::ReadIops, Measure::WriteIops));
        assert_eq!((one.system, group.cells.len()), (other.system, 2), "one trial has both");
    }

    #[test]
    fn a_system_may_be_several_disks_by_itself_and_a_load_says_otherwise() {
        let plan = good(&format!(
            "{PLAN}[[compare]]\nsystems = [\"ssd\"]\nreference = \"sata\"\nof = \"iops\"\n"
        ));
        let load = plan.groups[0].cells[0].load;
        let [ssd, _, sata, _] = &plan.systems[..] else { panic!("four systems") };
        assert_eq!([ssd, sata].map(|one| one.disks_under(&load)), [1, 8]);
        assert_eq!(sata.disks_under(&Load { disks: Some(2), ..load }), 2);
        // A MiB of each is its label.
        assert_eq!(sata.bytes_under(&load), Some(8 * (15 << 20)));
        assert_eq!(ssd.bytes_under(&load), Some(16 << 20));
        let odd = System { bytes: Some((2 << 20) + 512), ..sata.clone() };
        assert_eq!(odd.bytes_under(&load), Some(8 << 20), "whole chunks");
        let small = System { bytes: Some(1 << 20), ..sata.clone() };
        assert_eq!(small.bytes_under(&load), Some(0), "a label and nothing else");
    }
}
