//! Paths: by which listeners hosts may reach volumes at present, and by which they had better.
//!
//! Listeners stand in groups. The state of a group is one for all protocols: SCSI hosts see it as
//! that of a target port group (ALUA), NVMe hosts as that of an ANA group; both have its number. It
//! is one value of the whole server, changed by an administrator or, where the configuration lets
//! them, by hosts ([`replica`](crate::replica)), and survives a restart. What a path does not serve is
//! refused before it goes below; what may be asked by it all the same, each protocol says. As text:
//! one line of the groups that ever changed. Errors: what was expected, and what was seen. Spec:
//! SPC-4, "Asymmetric logical unit access"; NVMe base, "Asymmetric Namespace Access".
//!
//! ```text
//! 1=optimized by administrator, 3 changes; 2=standby by host, 1 change
//! ```

use core::fmt;
use core::str::FromStr;

use crate::replica::Value;
use crate::state::TextError;

/// The number of a group of listeners, 1 to [`PathGroup::MAX`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PathGroup(u16);

impl PathGroup {
    /// Of listeners of which nothing else was said.
    pub const DEFAULT: PathGroup = PathGroup(1);
    /// Each has an entry in the table of states, and is reported to hosts that ask.
    pub const MAX: u16 = 255;

    /// The group of this number; `None` for 0 and for more than [`MAX`](Self::MAX).
    pub fn new(number: u16) -> Option<PathGroup> {
        (1..=Self::MAX).contains(&number).then_some(PathGroup(number))
    }

    /// Its number.
    pub fn number(self) -> u16 {
        self.0
    }

    #[inline]
    fn index(self) -> usize {
        usize::from(self.0) - 1
    }
}

impl Default for PathGroup {
    fn default() -> PathGroup {
        PathGroup::DEFAULT
    }
}

impl fmt::Display for PathGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// How volumes are reached through a group of listeners.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PathState {
    /// As well as by any other.
    #[default]
    Optimized,
    /// Hosts had better take another.
    NonOptimized,
    /// Not for blocks, but it answers what a host needs to keep the path.
    Standby,
    /// Not at all.
    Unavailable,
    /// It is about to be in another state: hosts ask again.
    Transitioning,
}

impl PathState {
    /// All of them, by the names that people type.
    pub const ALL: [(PathState, &str); 5] = [
        (PathState::Optimized, "optimized"),
        (PathState::NonOptimized, "non-optimized"),
        (PathState::Standby, "standby"),
        (PathState::Unavailable, "unavailable"),
        (PathState::Transitioning, "transitioning"),
    ];

    /// The name that people type.
    pub fn name(self) -> &'static str {
        let known = Self::ALL.iter().find(|(state, _)| *state == self);
        known.expect("each has a name").1
    }

    /// Whether blocks are read and written by it.
    #[inline]
    pub fn serves(self) -> bool {
        matches!(self, PathState::Optimized | PathState::NonOptimized)
    }
}

impl fmt::Display for PathState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for PathState {
    type Err = TextError;

    fn from_str(text: &str) -> Result<PathState, TextError> {
        let known = Self::ALL.iter().find(|(_, name)| *name == text);
        known.map(|(state, _)| *state).ok_or_else(|| TextError {
            expected: "optimized, non-optimized, standby, unavailable or transitioning",
            seen: text.to_owned(),
        })
    }
}

/// Who brought a group into its state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SetBy {
    /// It was always in it.
    #[default]
    Nobody,
    Administrator,
    /// A host, by a session of this number, which no other ever has; 0 of one that is long over.
    Host(u64),
}

/// A group: its state and how it came into it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Path {
    pub state: PathState,
    pub set_by: SetBy,
    /// How often it changed.
    pub changes: u64,
}

/// The states of all groups.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Paths {
    /// By number less one; those behind the last never changed.
    groups: Vec<Path>,
}

/// Groups are to be in other states; all of it or nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathChange {
    pub states: Vec<(PathGroup, PathState)>,
    pub by: SetBy,
}

impl Paths {
    /// The state of a group, asked for each command.
    #[inline]
    pub fn state(&self, group: PathGroup) -> PathState {
        self.groups.get(group.index()).map_or(PathState::Optimized, |path| path.state)
    }

    /// A group.
    pub fn get(&self, group: PathGroup) -> Path {
        self.groups.get(group.index()).copied().unwrap_or_default()
    }

    /// How often any group changed.
    pub fn changes(&self) -> u64 {
        self.groups.iter().map(|path| path.changes).sum()
    }

    /// The groups that ever changed, ascending.
    pub fn iter(&self) -> impl Iterator<Item = (PathGroup, Path)> {
        let all = (1..).map(PathGroup).zip(self.groups.iter().copied());
        all.filter(|(_, path)| *path != Path::default())
    }

    /// The groups whose state is another than here, ascending, and who changed them.
    pub fn changed_since<'a>(
        &'a self,
        before: &'a Paths,
    ) -> impl Iterator<Item = (PathGroup, SetBy)> + 'a {
        let all = self.iter().filter(|(group, path)| before.state(*group) != path.state);
        all.map(|(group, path)| (group, path.set_by))
    }

    /// Whether all groups are as they always were: there is nothing to store.
    pub fn is_default(&self) -> bool {
        self.iter().next().is_none()
    }

    fn path_mut(&mut self, group: PathGroup) -> &mut Path {
        if self.groups.len() <= group.index() {
            self.groups.resize(group.index() + 1, Path::default());
        }
        &mut self.groups[group.index()]
    }
}

impl Value for Paths {
    type Change = PathChange;
    type Answer = ();

    /// Who sets what is so already changes nothing.
    fn apply(&self, change: &PathChange) -> (Option<Paths>, ()) {
        let mut next = self.clone();
        for &(group, state) in &change.states {
            let path = next.path_mut(group);
            if path.state != state {
                *path = Path { state, set_by: change.by, changes: path.changes + 1 };
            }
        }
        let same = self.changes() == next.changes();
        ((!same).then_some(next), ())
    }
}

const BY_NOBODY: &str = "nobody";
const BY_ADMINISTRATOR: &str = "administrator";
const BY_HOST: &str = "host";

impl fmt::Display for SetBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            SetBy::Nobody => BY_NOBODY,
            SetBy::Administrator => BY_ADMINISTRATOR,
            SetBy::Host(_) => BY_HOST,
        })
    }
}

impl fmt::Display for Paths {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (group, Path { state, set_by, changes })) in self.iter().enumerate() {
            let (between, plural) =
                (if at > 0 { "; " } else { "" }, if changes == 1 { "" } else { "s" });
            write!(f, "{between}{group}={state} by {set_by}, {changes} change{plural}")?;
        }
        Ok(())
    }
}

impl FromStr for Paths {
    type Err = TextError;

    fn from_str(text: &str) -> Result<Paths, TextError> {
        let mut paths = Paths::default();
        for one in text.split("; ").filter(|one| !one.is_empty()) {
            let (group, path) = parse_group(one)?;
            if paths.get(group) != Path::default() {
                let expected = "each group once";
                return Err(TextError { expected, seen: one.to_owned() });
            }
            *paths.path_mut(group) = path;
        }
        Ok(paths)
    }
}

/// `2=standby by host, 1 change`
fn parse_group(text: &str) -> Result<(PathGroup, Path), TextError> {
    let wrong = |expected| TextError { expected, seen: text.chars().take(80).collect() };
    let shape = "a group like \"2=standby by administrator, 1 change\"";
    let (group, rest) = text.split_once('=').ok_or_else(|| wrong(shape))?;
    let group = group.parse().ok().and_then(PathGroup::new);
    let group = group.ok_or_else(|| wrong("the number of a group, 1 to 255"))?;
    let (state, rest) = rest.split_once(" by ").ok_or_else(|| wrong(shape))?;
    let (set_by, changes) = rest.split_once(", ").ok_or_else(|| wrong(shape))?;
    let set_by = match set_by {
        BY_NOBODY => SetBy::Nobody,
        BY_ADMINISTRATOR => SetBy::Administrator,
        BY_HOST => SetBy::Host(0),
        _ => return Err(wrong("nobody, administrator or host behind \"by\"")),
    };
    let changes = changes.strip_suffix(" change").or_else(|| changes.strip_suffix(" changes"));
    let changes = changes.and_then(|number| number.parse().ok());
    let changes = changes.ok_or_else(|| wrong("how often it changed"))?;
    Ok((group, Path { state: state.parse()?, set_by, changes }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(number: u16) -> PathGroup {
        PathGroup::new(number).unwrap()
    }

    fn changed(paths: &Paths, states: &[(u16, PathState)], by: SetBy) -> Option<Paths> {
        let states = states.iter().map(|(number, state)| (group(*number), *state)).collect();
        paths.apply(&PathChange { states, by }).0
    }

    #[test]
    fn a_group_is_optimized_until_somebody_says_otherwise() {
        let paths = Paths::default();
        assert_eq!((paths.state(group(1)), paths.changes()), (PathState::Optimized, 0));
        assert_eq!(paths.state(group(PathGroup::MAX)), PathState::Optimized);
        assert_eq!(changed(&paths, &[(7, PathState::Optimized)], SetBy::Administrator), None);
        let standby = [(7, PathState::Standby)];
        let paths = changed(&paths, &standby, SetBy::Administrator).unwrap();
        assert_eq!(
            (paths.state(group(7)), paths.state(group(6))),
            (PathState::Standby, PathState::Optimized)
        );
        assert_eq!(changed(&paths, &standby, SetBy::Host(3)), None, "it is so already");
    }

    #[test]
    fn several_groups_change_at_once_and_each_is_counted() {
        let both = [(1, PathState::NonOptimized), (2, PathState::Transitioning)];
        let first = changed(&Paths::default(), &both, SetBy::Host(9)).unwrap();
        let told: Vec<_> = first.changed_since(&Paths::default()).collect();
        assert_eq!(told, [(group(1), SetBy::Host(9)), (group(2), SetBy::Host(9))]);
        let second = changed(&first, &[(2, PathState::Optimized)], SetBy::Administrator).unwrap();
        let told: Vec<_> = second.changed_since(&first).collect();
        assert_eq!(told, [(group(2), SetBy::Administrator)]);
        assert_eq!((second.get(group(1)).changes, second.get(group(2)).changes), (1, 2));
        assert_eq!(second.changes(), 3);
        // There and back is no change to whoever sees only the ends.
        let back = changed(&second, &[(1, PathState::Optimized)], SetBy::Administrator).unwrap();
        assert_eq!(back.changed_since(&Paths::default()).count(), 0);
    }

    #[test]
    fn a_text_is_what_it_was_made_of_but_for_the_session() {
        let both = [(1, PathState::NonOptimized), (255, PathState::Unavailable)];
        let paths = changed(&Paths::default(), &both, SetBy::Host(0)).unwrap();
        let paths = changed(&paths, &[(1, PathState::Optimized)], SetBy::Administrator).unwrap();
        let text = "1=optimized by administrator, 2 changes; 255=unavailable by host, 1 change";
        assert_eq!((paths.to_string(), text.parse()), (text.to_owned(), Ok(paths)));
        assert_eq!("".parse(), Ok(Paths::default()));
        for (state, name) in PathState::ALL {
            assert_eq!((name.parse(), state.name()), (Ok(state), name));
        }
    }

    #[test]
    fn a_text_that_is_none_says_what_was_expected() {
        for (text, expected) in [
            ("standby", "a group like"),
            ("0=standby by host, 1 change", "1 to 255"),
            ("256=standby by host, 1 change", "1 to 255"),
            ("1=asleep by host, 1 change", "optimized, non-optimized, standby"),
            ("1=standby by me, 1 change", "nobody, administrator or host"),
            ("1=standby by host, often", "how often"),
            ("1=standby by host, 1 change; 1=standby by host, 1 change", "each group once"),
        ] {
            let error = text.parse::<Paths>().unwrap_err();
            assert!(error.expected.contains(expected), "{text}: {error}");
        }
    }
}
