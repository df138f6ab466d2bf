//! Loads of files on a file system in memory, which is the oracle: hands that take turns in any order do nothing that
//! cannot be done, read what was written, and leave what the register says.

use std::collections::BTreeMap;

use block::Random;

use super::register::Part;
use super::*;

/// A file system in memory, in which whatever cannot be done fails a test.
#[derive(Default)]
struct Model {
    files: BTreeMap<u32, Vec<u8>>,
    /// How many have each open.
    open: BTreeMap<u32, u32>,
    /// Up to where the log was written last.
    log: u64,
}

impl Model {
    fn of(set: &FileSet) -> Model {
        let held = |file: u32| {
            let mut bytes = vec![0; set.length(file) as usize];
            contents::fill(&mut bytes, contents::key(set.seed(), file, 0), 0);
            (file, bytes)
        };
        Model { files: (0..set.there()).map(held).collect(), ..Model::default() }
    }

    fn write(&mut self, act: &Act, Part { offset, bytes }: Part) {
        let file = self.files.get_mut(&act.file).expect("what is written is there");
        let end = (offset + bytes) as usize;
        file.resize(file.len().max(end), 0);
        contents::fill(&mut file[offset as usize..end], act.key, offset);
    }

    fn read(&self, act: &Act, Part { offset, bytes }: Part) {
        let file = &self.files[&act.file];
        let seen = &file[offset as usize..(offset + bytes) as usize];
        assert_eq!(contents::differs(seen, act.key, offset), None, "{act:?}");
    }

    fn carry_out(&mut self, act: &Act) {
        let file = act.file;
        let is_open = |model: &Model| model.open.get(&file).is_some_and(|open| *open > 0);
        match act.deed {
            Deed::Open => {
                assert!(self.files.contains_key(&file), "{act:?} of none");
                *self.open.entry(file).or_default() += 1;
            }
            Deed::Create => {
                assert!(self.files.insert(file, Vec::new()).is_none(), "{act:?} of what is there");
                assert_eq!(self.open.insert(file, 1).unwrap_or(0), 0);
            }
            Deed::Delete => {
                assert!(!is_open(self), "{act:?} of what is open");
                assert!(self.files.remove(&file).is_some(), "{act:?} of none");
            }
            Deed::Close => {
                assert!(is_open(self), "{act:?} of what is closed");
                *self.open.get_mut(&file).unwrap() -= 1;
            }
            Deed::Sync => assert!(is_open(self), "{act:?} of what is closed"),
            Deed::Stat { bytes } => assert!(self.files[&file].len() as u64 >= bytes, "{act:?}"),
            Deed::Read(part) => {
                assert!(is_open(self) && part.offset == 0, "{act:?}");
                self.read(act, part);
            }
            Deed::Append { part, log: true, anew } => {
                // Several write there at a time; whoever begins it anew writes at its start.
                assert!(!anew || part.offset == 0, "{act:?}");
                self.log = part.offset + part.bytes;
            }
            Deed::Write(part) | Deed::Append { part, .. } => {
                assert!(is_open(self), "{act:?} of what is closed");
                self.write(act, part);
            }
            Deed::ReadAt(part) => self.read(act, part),
            Deed::WriteAt(part) => self.write(act, part),
        }
    }
}

/// What came of a load.
struct Played {
    model: Model,
    register: Register,
    acts: Vec<Act>,
}

/// Plays so many operations of a personality with threads that take turns as a seed has it: an act begins when it is
/// given out, and is carried out and ends some turns later.
fn play(personality: Personality, bytes: u64, threads: u32, acts: usize, seed: u64) -> Played {
    let set = FileSet::new(personality, bytes, seed);
    let mut model = Model::of(&set);
    let mut register = Register::new(set);
    let mut random = Random::new(seed ^ 0x5eed);
    let roles = personality.roles(threads);
    let mut hands: Vec<Hand> =
        roles.iter().map(|role| Hand::new(*role, random.next_u64(), &mut register)).collect();
    let mut doing: Vec<Option<Act>> = vec![None; hands.len()];
    let (mut done, mut idle) = (Vec::new(), 0);
    while done.len() < acts {
        let at = random.below(hands.len() as u64) as usize;
        match doing[at].take() {
            Some(act) => {
                model.carry_out(&act);
                hands[at].end(&mut register, &act);
                done.push(act);
                idle = 0;
            }
            None => {
                doing[at] = hands[at].next(&mut register);
                idle += 1;
                assert!(idle < 10_000, "all wait for each other");
            }
        }
    }
    Played { model, register, acts: done }
}

/// How many of a thousand are so.
fn share(acts: &[Act], is: impl Fn(&Deed) -> bool) -> usize {
    acts.iter().filter(|act| is(&act.deed)).count() * 1000 / acts.len()
}

#[test]
fn whoever_takes_turns_does_nothing_that_cannot_be_done_and_reads_what_was_written() {
    for (_, personality) in Personality::WORDS {
        for seed in 0..8 {
            let threads = 1 + seed as u32 * 2;
            let bytes = personality.bytes_min(threads).min(24 << 20);
            let Played { register, model, .. } = play(*personality, bytes, threads, 3_000, seed);
            let (there, _) = register.seen();
            // Those that are open in the making are in no list.
            let (least, most) = (there, there + 2 * threads as usize);
            assert!((least..=most).contains(&model.files.len()), "{personality:?} {there}");
        }
    }
}

#[test]
fn operations_have_the_shares_that_filebench_has() {
    let of = |personality: Personality| {
        let bytes = personality.bytes_min(4) * 2;
        play(personality, bytes, 4, 30_000, 3).acts
    };
    let web = of(Personality::Webserver);
    assert!(share(&web, |deed| matches!(deed, Deed::Open)).abs_diff(10_000 / 31) <= 1);
    assert!(share(&web, |deed| matches!(deed, Deed::Append { log: true, .. })).abs_diff(32) <= 1);
    let files = of(Personality::Fileserver);
    for one in [
        share(&files, |deed| matches!(deed, Deed::Create)),
        share(&files, |deed| matches!(deed, Deed::Write(_))),
        share(&files, |deed| matches!(deed, Deed::Append { .. })),
        share(&files, |deed| matches!(deed, Deed::Read(_))),
        share(&files, |deed| matches!(deed, Deed::Delete)),
        share(&files, |deed| matches!(deed, Deed::Stat { .. })),
    ] {
        assert!(one.abs_diff(1000 / 11) <= 1, "{one}");
    }
    let mail = of(Personality::Varmail);
    assert!(share(&mail, |deed| matches!(deed, Deed::Sync)).abs_diff(2000 / 13) <= 1);
    assert!(share(&mail, |deed| matches!(deed, Deed::Read(_))).abs_diff(2000 / 13) <= 1);
    assert!(share(&mail, |deed| matches!(deed, Deed::Delete)).abs_diff(1000 / 13) <= 1);
    // Ten writers, each 10 for 100 reads: as many writes as reads; and of 3200 reads one write of the log.
    let oltp = of(Personality::Oltp);
    let of_log = |deed: &Deed| matches!(deed, Deed::WriteAt(part) if part.bytes > 4096);
    let logs = oltp.iter().filter(|act| of_log(&act.deed)).count();
    let reads = share(&oltp, |deed| matches!(deed, Deed::ReadAt(_)));
    assert!((3..=5).contains(&logs), "{logs} of 15000 reads");
    assert!((490..=530).contains(&reads), "{reads}");
}

#[test]
fn a_set_is_the_same_for_the_same_seed_and_as_long_as_it_is_to_be() {
    for (personality, mean) in
        [(Personality::Webserver, 16 << 10), (Personality::Fileserver, 128 << 10)]
    {
        let set = FileSet::new(personality, 10_000 * mean, 7);
        assert_eq!(set.count(), 10_000);
        let lengths: Vec<u64> = (0..set.count()).map(|file| set.length(file)).collect();
        let sum: u64 = lengths.iter().sum();
        assert!(sum.abs_diff(10_000 * mean) < 10_000 * mean / 30, "{sum}");
        // Of a gamma distribution of shape 1.5 the variance is the square of the mean by 1.5.
        let variance = lengths.iter().map(|length| (*length as f64 / mean as f64 - 1.0).powi(2));
        let variance = variance.sum::<f64>() / 1e4;
        assert!((0.6..0.74).contains(&variance), "{variance}");
        let again = FileSet::new(personality, 10_000 * mean, 7);
        let other = FileSet::new(personality, 10_000 * mean, 8);
        assert!((0..10_000).all(|file| again.length(file) == set.length(file)));
        assert!((0..10_000).any(|file| other.length(file) != set.length(file)));
    }
    let set = FileSet::new(Personality::Fileserver, 1000 << 17, 1);
    assert_eq!((set.count(), set.there()), (1000, 800));
    let set = FileSet::new(Personality::Oltp, 110 << 20, 1);
    let lengths: Vec<u64> = (0..set.count()).map(|file| set.length(file)).collect();
    assert_eq!(lengths, [10 << 20; 11]);
}

#[test]
fn files_lie_in_folders_of_twenty_and_letters_in_one() {
    let set = FileSet::new(Personality::Webserver, 9_000 << 14, 1);
    assert_eq!(
        [set.path(7), set.path(20), set.path(8421)],
        ["00000007", "1/00000020", "1/1/1/00008421"]
    );
    let mut entries: BTreeMap<String, std::collections::BTreeSet<String>> = BTreeMap::new();
    for file in 0..set.count() {
        let path = set.path(file);
        let mut parent = String::new();
        for part in path.split('/') {
            entries.entry(parent.clone()).or_default().insert(part.to_owned());
            parent = format!("{parent}/{part}");
        }
    }
    let most = entries.values().map(std::collections::BTreeSet::len).max();
    assert!(most <= Some(40), "{most:?}: twenty files and twenty folders");
    assert_eq!(
        entries
            .values()
            .map(|names| names.iter().filter(|name| name.len() == 8).count())
            .sum::<usize>(),
        9_000
    );
    assert_eq!(FileSet::new(Personality::Varmail, 9_000 << 14, 1).path(8421), "00008421");
}

#[test]
fn every_file_is_met_about_as_often_as_another() {
    let Played { acts, register, .. } = play(Personality::Webserver, 200 << 14, 3, 60_000, 5);
    let mut met = vec![0_u32; register.set().count() as usize];
    for act in acts.iter().filter(|act| act.deed == Deed::Open) {
        met[act.file as usize] += 1;
    }
    // Some 97 times each, with a deviation of 10.
    assert!(met.iter().all(|times| (50..150).contains(times)), "{met:?}");
}

#[test]
fn what_comes_and_goes_stays_about_as_much() {
    let set = FileSet::new(Personality::Varmail, 400 << 14, 9);
    let Played { register, model, .. } = play(Personality::Varmail, 400 << 14, 4, 100_000, 9);
    let (there, _) = register.seen();
    assert!(there.abs_diff(set.there() as usize) <= 4, "{there}");
    let bytes: usize = model.files.values().map(Vec::len).sum();
    assert!(bytes < 400 << 14, "{bytes}: what comes with a letter goes with it");
}

#[test]
fn a_log_begins_anew_before_it_is_longer_than_it_may_be() {
    let Played { acts, register, model } = play(Personality::Webserver, 40 << 14, 2, 20_000, 2);
    let logs: Vec<(Part, bool)> = acts
        .iter()
        .filter_map(|act| match act.deed {
            Deed::Append { part, log: true, anew } => Some((part, anew)),
            _ => None,
        })
        .collect();
    assert!(logs.iter().all(|(part, _)| part.offset + part.bytes <= register.set().log_max()));
    assert!(model.log > 0);
    assert!(logs.iter().filter(|(_, anew)| *anew).count() > 5);
}

#[test]
fn contents_say_which_file_they_are_of_how_often_it_was_made_and_where_they_lie() {
    let key = contents::key(1, 2, 3);
    let mut whole = vec![0; 10_000];
    contents::fill(&mut whole, key, 0);
    // In pieces of any length from any place it is the same.
    for (from, to) in [(0, 1), (1, 9), (5, 8), (7, 10_000), (4095, 4098), (9, 9)] {
        let mut piece = vec![0; to - from];
        contents::fill(&mut piece, key, from as u64);
        assert_eq!(piece, whole[from..to], "{from}..{to}");
        assert_eq!(contents::differs(&piece, key, from as u64), None);
    }
    for other in [contents::key(2, 2, 3), contents::key(1, 3, 3), contents::key(1, 2, 4)] {
        let seen = contents::differs(&whole, other, 0).expect("other contents");
        assert!(seen.offset < 8 && !seen.is_blank);
    }
    assert!(contents::differs(&whole[4096..8192], key, 0).is_some(), "of another place");
    for at in [0, 4095, 4096, 9999] {
        let mut wrong = whole.clone();
        wrong[at] ^= 1;
        let seen = contents::differs(&wrong, key, 0).map(|seen| seen.offset);
        assert_eq!(seen, Some(at as u64));
    }
    let mut blank = whole.clone();
    blank[4096..8192].fill(0);
    let seen = contents::differs(&blank, key, 0).unwrap();
    assert!(seen.is_blank && seen.offset <= 4103, "{seen:?}");
}

#[test]
fn what_is_counted_is_of_the_last_five_windows_that_are_over() {
    let part = |bytes| Part { offset: 0, bytes };
    let mut count = Count::default();
    count.add(&Deed::Sync, 5);
    for window in 1..=8_u64 {
        count.begin_window();
        (0..window).for_each(|_| count.add(&Deed::Read(part(100)), window * 1000));
        count.add(&Deed::Append { part: part(7), log: true, anew: false }, 1000);
    }
    // The eighth is not over, and what was before the first counts nowhere.
    let (counted, last) = count.last();
    let reads = 3 + 4 + 5 + 6 + 7;
    let expected = Counted {
        read: reads,
        append: 5,
        read_bytes: reads * 100,
        written_bytes: 35,
        ..Counted::default()
    };
    assert_eq!((counted, counted.operations(), last.requests), (expected, reads + 5, reads + 5));
    let mut few = Count::default();
    few.add(&Deed::Sync, 5);
    few.begin_window();
    assert_eq!(few.last().0, Counted::default());
    few.add(&Deed::Open, 5);
    few.begin_window();
    let (counted, last) = few.last();
    assert_eq!((counted.open, counted.operations(), last.requests), (1, 1, 1));
}
