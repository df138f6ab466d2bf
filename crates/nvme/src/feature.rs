//! Get Features and Set Features.
//!
//! Features belong to a controller, start at their defaults, and nothing is saved (SV is 0x10D).
//! Units: KATO in milliseconds, the timestamp in milliseconds since 1970. Errors: an unknown
//! feature or a value that cannot be had is 0x002, a feature that cannot be changed 0x10E, one with
//! an NSID that is not per namespace 0x10F; all with DNR. Error recovery and what concerns
//! reservations are per namespace; whether registrants outlive the process is the reservation's, and
//! is changed there (`controllers`).
//! Spec: NVMe base, "Feature Identifiers".

use std::collections::BTreeMap;

use block::Instant;
use wire::nvme::command::NSID_ALL;
use wire::nvme::feature::{
    AsyncEventMask, ErrorRecovery, FeatureCapabilities, FeatureId, NumberOfQueues, Select,
    Timestamp, VolatileWriteCache,
};
use wire::nvme::reservation::{NotificationMask, NotificationType, ReservationPersistence};
use wire::nvme::{Command, Status};

use crate::limits::IO_QUEUES_MAX;

/// What a feature command returns: DW0, and data for the host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Value {
    pub(crate) result: u32,
    pub(crate) data: Vec<u8>,
}

/// What has to be known of the controller beside its features.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Context<'a> {
    pub(crate) now: Instant,
    pub(crate) discovery: bool,
    /// Whether a namespace has a volatile cache.
    pub(crate) cache_volatile: bool,
    pub(crate) host_id: &'a [u8; 16],
    /// Whether an I/O queue exists.
    pub(crate) has_queues: bool,
    /// Whether there is a namespace of the command's NSID.
    pub(crate) has_namespace: bool,
    /// Whether those who are registered with it outlive the process.
    pub(crate) persists: bool,
}

/// A feature: its value at first, and which bits of CDW11 are kept as the host sets them. What is
/// more to one than that stands in [`Features::current`] and [`Features::set`].
struct Feature {
    id: FeatureId,
    default: u32,
    kept: u32,
}

const fn feature(id: FeatureId, default: u32, kept: u32) -> Feature {
    Feature { id, default, kept }
}

/// The features there are.
const FEATURES: [Feature; 13] = [
    // The burst has no limit.
    feature(FeatureId::ARBITRATION, 7, u32::MAX),
    feature(FeatureId::POWER_MANAGEMENT, 0, 0xff),
    // The over-temperature threshold: there is no sensor, so none that could be reached.
    feature(FeatureId::TEMPERATURE_THRESHOLD, 0xffff, 0xffff),
    feature(FeatureId::ERROR_RECOVERY, 0, 0xffff),
    feature(FeatureId::VOLATILE_WRITE_CACHE, 1, 0),
    feature(FeatureId::NUMBER_OF_QUEUES, 0, 0),
    feature(FeatureId::WRITE_ATOMICITY, 0, 1),
    feature(FeatureId::ASYNC_EVENT_CONFIGURATION, 0, u32::MAX),
    feature(FeatureId::KEEP_ALIVE_TIMER, 0, u32::MAX),
    feature(FeatureId::TIMESTAMP, 0, 0),
    feature(FeatureId::HOST_IDENTIFIER, 0, 0),
    feature(FeatureId::RESERVATION_MASK, 0, 0b1110),
    feature(FeatureId::RESERVATION_PERSISTENCE, 0, 0),
];

/// Those that each namespace has for itself.
fn is_of_namespaces(feature: FeatureId) -> bool {
    matches!(
        feature,
        FeatureId::ERROR_RECOVERY
            | FeatureId::RESERVATION_MASK
            | FeatureId::RESERVATION_PERSISTENCE
    )
}

/// The features of a controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Features {
    /// As the host set them, in the order of [`FEATURES`].
    values: [u32; FEATURES.len()],
    /// I/O queues that the host may connect.
    pub(crate) queues_granted: u16,
    temperature_under: u16,
    /// Of namespaces that have other ones, by NSID.
    of_namespaces: BTreeMap<(FeatureId, u32), u32>,
    /// The time that was set, and when.
    timestamp: Timestamp,
    timestamp_at: Instant,
}

impl Features {
    /// The defaults, with the KATO of Connect.
    pub(crate) fn new(keep_alive_ms: u32) -> Self {
        let mut features = Features {
            values: FEATURES.map(|feature| feature.default),
            queues_granted: IO_QUEUES_MAX,
            temperature_under: 0,
            of_namespaces: BTreeMap::new(),
            timestamp: Timestamp::new(0, false),
            timestamp_at: Instant::ZERO,
        };
        features.values[place(FeatureId::KEEP_ALIVE_TIMER)] = keep_alive_ms;
        features
    }
    /// A controller reset: back to the defaults, but for KATO and the timestamp, which outlive it.
    pub(crate) fn reset(&mut self) {
        let Features { timestamp, timestamp_at, .. } = *self;
        *self = Features { timestamp, timestamp_at, ..Features::new(self.keep_alive_ms()) };
    }

    pub(crate) fn keep_alive_ms(&self) -> u32 {
        self.values[place(FeatureId::KEEP_ALIVE_TIMER)]
    }

    /// Whether the host wants to hear that the state of its path changed.
    pub(crate) fn access_events_enabled(&self) -> bool {
        AsyncEventMask(self.values[place(FeatureId::ASYNC_EVENT_CONFIGURATION)]).access_changed()
    }

    /// Whether the host wants to hear that namespaces changed, or of a discovery controller its log.
    pub(crate) fn events_enabled(&self) -> bool {
        let events = AsyncEventMask(self.values[place(FeatureId::ASYNC_EVENT_CONFIGURATION)]);
        events.namespace_changed() || events.discovery_changed()
    }

    /// Whether the host masked notifications of this type for a namespace.
    pub(crate) fn masks(&self, nsid: u32, kind: NotificationType) -> bool {
        NotificationMask(self.of_namespace(FeatureId::RESERVATION_MASK, nsid)).masks(kind)
    }

    fn of_namespace(&self, feature: FeatureId, nsid: u32) -> u32 {
        let own = self.of_namespaces.get(&(feature, nsid));
        own.copied().unwrap_or(self.values[place(feature)])
    }

    /// Get Features.
    pub(crate) fn get(&self, command: &Command, context: Context<'_>) -> Result<Value, Status> {
        let feature = FeatureId::of(command);
        check_known(feature, context)?;
        match FeatureId::select_of(command) {
            Select::CURRENT => self.current(feature, command, context),
            // Nothing is saved: the saved value is the default one.
            Select::DEFAULT | Select::SAVED => {
                let context = Context { now: Instant::ZERO, persists: false, ..context };
                Features::new(0).current(feature, command, context)
            }
            Select::CAPABILITIES => {
                let fixed =
                    matches!(feature, FeatureId::VOLATILE_WRITE_CACHE | FeatureId::HOST_IDENTIFIER);
                let capabilities = FeatureCapabilities(0)
                    .with_changeable(!fixed)
                    .with_namespace_specific(is_of_namespaces(feature));
                Ok(Value { result: capabilities.0, data: Vec::new() })
            }
            _ => Err(Status::INVALID_FIELD),
        }
    }

    fn current(
        &self,
        feature: FeatureId,
        command: &Command,
        context: Context<'_>,
    ) -> Result<Value, Status> {
        let result = match feature {
            FeatureId::TEMPERATURE_THRESHOLD => match is_under(command.cdw(11))? {
                true => self.temperature_under.into(),
                false => self.values[place(feature)],
            },
            FeatureId::RESERVATION_PERSISTENCE if !context.has_namespace => {
                return Err(Status::INVALID_NAMESPACE);
            }
            FeatureId::RESERVATION_PERSISTENCE => {
                ReservationPersistence(0).with_persists(context.persists).0
            }
            FeatureId::ERROR_RECOVERY | FeatureId::RESERVATION_MASK => {
                check_namespace(command, context)?;
                self.of_namespace(feature, command.nsid())
            }
            FeatureId::NUMBER_OF_QUEUES => queues(self.queues_granted),
            FeatureId::TIMESTAMP => {
                let elapsed = context.now.since(self.timestamp_at).as_millis() as u64;
                let milliseconds = self.timestamp.milliseconds().wrapping_add(elapsed);
                let set_by_host = self.timestamp.attributes & 2 != 0;
                let data = Timestamp::new(milliseconds, set_by_host).emit().to_vec();
                return Ok(Value { result: 0, data });
            }
            FeatureId::HOST_IDENTIFIER => {
                // EXHID: the 64-bit form does not exist over fabrics.
                if command.cdw(11) & 1 == 0 {
                    return Err(Status::INVALID_FIELD);
                }
                return Ok(Value { result: 0, data: context.host_id.to_vec() });
            }
            _ => self.values[place(feature)],
        };
        Ok(Value { result, data: Vec::new() })
    }

    /// Set Features; `data` are what came with the command.
    pub(crate) fn set(
        &mut self,
        command: &Command,
        data: &[u8],
        context: Context<'_>,
    ) -> Result<Value, Status> {
        let feature = FeatureId::of(command);
        check_known(feature, context)?;
        if FeatureId::save_of(command) {
            return Err(Status::FEATURE_NOT_SAVEABLE);
        }
        if is_of_namespaces(feature) {
            check_namespace(command, context)?;
        } else if !is_for_all(command) {
            return Err(Status::FEATURE_NOT_NAMESPACE_SPECIFIC);
        }
        let value = command.cdw(11);
        let kept = value & FEATURES[place(feature)].kept;
        let mut result = 0;
        match feature {
            // There is one power state.
            FeatureId::POWER_MANAGEMENT if value & 0x1f != 0 => return Err(Status::INVALID_FIELD),
            FeatureId::TEMPERATURE_THRESHOLD if is_under(value)? => {
                self.temperature_under = kept as u16;
            }
            // No namespace reports deallocated blocks as errors (NSFEAT bit 2).
            FeatureId::ERROR_RECOVERY if ErrorRecovery(value).deallocated_error() => {
                return Err(Status::INVALID_FIELD);
            }
            FeatureId::ERROR_RECOVERY | FeatureId::RESERVATION_MASK if !is_for_all(command) => {
                self.of_namespaces.insert((feature, command.nsid()), kept);
            }
            FeatureId::ERROR_RECOVERY | FeatureId::RESERVATION_MASK => {
                self.values[place(feature)] = kept;
                self.of_namespaces.retain(|(other, _), _| *other != feature);
            }
            // The cache is what the backing has: it cannot be switched off.
            FeatureId::VOLATILE_WRITE_CACHE => {
                if !VolatileWriteCache(value).enabled() {
                    return Err(Status::FEATURE_NOT_CHANGEABLE);
                }
            }
            FeatureId::NUMBER_OF_QUEUES => result = self.grant_queues(value, context)?,
            FeatureId::ASYNC_EVENT_CONFIGURATION => {
                self.values[place(feature)] = supported_events(value, context).0;
            }
            FeatureId::TIMESTAMP => {
                let set = Timestamp::parse(data).map_err(|_| Status::INVALID_SGL_LENGTH)?;
                self.timestamp = Timestamp::new(set.milliseconds(), true);
                self.timestamp_at = context.now;
            }
            // HOSTID is what Connect said.
            FeatureId::HOST_IDENTIFIER => return Err(Status::COMMAND_SEQUENCE_ERROR),
            _ => self.values[place(feature)] = kept,
        }
        Ok(Value { result, data: Vec::new() })
    }

    fn grant_queues(&mut self, value: u32, context: Context<'_>) -> Result<u32, Status> {
        let asked = NumberOfQueues(value);
        if asked.submission() == 0xffff || asked.completion() == 0xffff {
            return Err(Status::INVALID_FIELD);
        }
        if context.has_queues {
            return Err(Status::COMMAND_SEQUENCE_ERROR);
        }
        // Over fabrics a queue is a pair: the smaller number counts.
        let pairs = asked.submission().min(asked.completion()) + 1;
        self.queues_granted = pairs.min(IO_QUEUES_MAX.into()) as u16;
        Ok(queues(self.queues_granted))
    }
}

/// Which threshold TMPSEL and THSEL name: the composite temperature's (or that of all sensors),
/// over or under.
fn is_under(value: u32) -> Result<bool, Status> {
    match (value >> 16 & 0xf, value >> 20 & 3) {
        (0 | 15, 0) => Ok(false),
        (0 | 15, 1) => Ok(true),
        _ => Err(Status::INVALID_FIELD),
    }
}

/// Where a feature that is known stands in [`FEATURES`].
fn place(id: FeatureId) -> usize {
    FEATURES.iter().position(|feature| feature.id == id).expect("a feature that is known")
}

/// The features there are. A discovery controller has those of events and keep alive alone.
pub(crate) fn is_known(id: FeatureId, discovery: bool, cache_volatile: bool) -> bool {
    match id {
        FeatureId::ASYNC_EVENT_CONFIGURATION | FeatureId::KEEP_ALIVE_TIMER => true,
        FeatureId::VOLATILE_WRITE_CACHE => !discovery && cache_volatile,
        _ => !discovery && FEATURES.iter().any(|feature| feature.id == id),
    }
}

fn check_known(feature: FeatureId, context: Context<'_>) -> Result<(), Status> {
    if is_known(feature, context.discovery, context.cache_volatile) {
        Ok(())
    } else {
        Err(Status::INVALID_FIELD)
    }
}

/// Whether a command is about all namespaces.
fn is_for_all(command: &Command) -> bool {
    command.nsid() == 0 || command.nsid() == NSID_ALL
}

/// Checks the NSID of a feature that each namespace has for itself.
fn check_namespace(command: &Command, context: Context<'_>) -> Result<(), Status> {
    if is_for_all(command) || context.has_namespace {
        return Ok(());
    }
    Err(Status::INVALID_NAMESPACE)
}

/// NSQA and NCQA, 0-based.
fn queues(granted: u16) -> u32 {
    let count = u32::from(granted) - 1;
    NumberOfQueues(0).with_submission(count).with_completion(count).0
}

/// The events of `value` that there are: namespaces or the discovery log, and the SMART warnings,
/// which never occur.
fn supported_events(value: u32, context: Context<'_>) -> AsyncEventMask {
    let asked = AsyncEventMask(value);
    if context.discovery {
        AsyncEventMask(0).with_discovery_changed(asked.discovery_changed())
    } else {
        AsyncEventMask(0)
            .with_smart(asked.smart())
            .with_namespace_changed(asked.namespace_changed())
            .with_access_changed(asked.access_changed())
    }
}
