//! Get Features and Set Features.
//!
//! Features belong to a controller, start at their defaults, and nothing is saved (SV is 0x10D). Units: KATO in milliseconds, the
//! timestamp in milliseconds since 1970. Errors: an unknown feature or a value that cannot be had is 0x002, a feature that cannot be changed
//! 0x10E, one with an NSID that is not per namespace 0x10F; all with DNR. Error recovery alone is per namespace. Spec: NVMe base, "Feature Identifiers".

use std::collections::BTreeMap;

use block::Instant;
use wire::nvme::command::NSID_ALL;
use wire::nvme::feature::{
    AsyncEventMask, ErrorRecovery, FeatureCapabilities, FeatureId, NumberOfQueues, Select,
    Timestamp, VolatileWriteCache,
};
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
}

/// The features of a controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Features {
    pub(crate) keep_alive_ms: u32,
    /// I/O queues that the host may connect.
    pub(crate) queues_granted: u16,
    events: AsyncEventMask,
    arbitration: u32,
    power: u32,
    temperature_over: u16,
    temperature_under: u16,
    error_recovery: u32,
    /// Of namespaces that have another one.
    error_recovery_of: BTreeMap<u32, u32>,
    write_atomicity: u32,
    /// The time that was set, and when.
    timestamp: Timestamp,
    timestamp_at: Instant,
}

/// Arbitration burst: no limit.
const ARBITRATION_DEFAULT: u32 = 7;
/// Over-temperature threshold: there is no sensor, so none that could be reached.
const TEMPERATURE_DEFAULT: u16 = 0xffff;

impl Features {
    /// The defaults, with the KATO of Connect.
    pub(crate) fn new(keep_alive_ms: u32) -> Self {
        Features {
            keep_alive_ms,
            queues_granted: IO_QUEUES_MAX,
            events: AsyncEventMask(0),
            arbitration: ARBITRATION_DEFAULT,
            power: 0,
            temperature_over: TEMPERATURE_DEFAULT,
            temperature_under: 0,
            error_recovery: 0,
            error_recovery_of: BTreeMap::new(),
            write_atomicity: 0,
            timestamp: Timestamp::new(0, false),
            timestamp_at: Instant::ZERO,
        }
    }

    /// A controller reset: back to the defaults, but for KATO and the timestamp, which outlive it.
    pub(crate) fn reset(&mut self) {
        let timestamp = (self.timestamp, self.timestamp_at);
        *self = Features::new(self.keep_alive_ms);
        (self.timestamp, self.timestamp_at) = timestamp;
    }

    /// Whether the host wants the one event that a controller of its kind can have.
    pub(crate) fn events_enabled(&self) -> bool {
        self.events.namespace_changed() || self.events.discovery_changed()
    }

    /// Get Features.
    pub(crate) fn get(&self, command: &Command, context: Context<'_>) -> Result<Value, Status> {
        let feature = FeatureId::of(command);
        check_known(feature, context)?;
        match FeatureId::select_of(command) {
            Select::CURRENT => self.current(feature, command, context),
            // Nothing is saved: the saved value is the default one.
            Select::DEFAULT | Select::SAVED => {
                let context = Context { now: Instant::ZERO, ..context };
                Features::new(0).current(feature, command, context)
            }
            Select::CAPABILITIES => {
                let fixed =
                    matches!(feature, FeatureId::VOLATILE_WRITE_CACHE | FeatureId::HOST_IDENTIFIER);
                let capabilities = FeatureCapabilities(0)
                    .with_changeable(!fixed)
                    .with_namespace_specific(feature == FeatureId::ERROR_RECOVERY);
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
            FeatureId::ARBITRATION => self.arbitration,
            FeatureId::POWER_MANAGEMENT => self.power,
            FeatureId::TEMPERATURE_THRESHOLD => self.temperature(command.cdw11())?.into(),
            FeatureId::ERROR_RECOVERY => {
                check_namespace(command, context)?;
                let own = self.error_recovery_of.get(&command.nsid());
                own.copied().unwrap_or(self.error_recovery)
            }
            FeatureId::VOLATILE_WRITE_CACHE => VolatileWriteCache(0).with_enabled(true).0,
            FeatureId::NUMBER_OF_QUEUES => queues(self.queues_granted),
            FeatureId::WRITE_ATOMICITY => self.write_atomicity,
            FeatureId::ASYNC_EVENT_CONFIGURATION => self.events.0,
            FeatureId::KEEP_ALIVE_TIMER => self.keep_alive_ms,
            FeatureId::TIMESTAMP => {
                let elapsed = context.now.since(self.timestamp_at).as_millis() as u64;
                let milliseconds = self.timestamp.milliseconds().wrapping_add(elapsed);
                let set_by_host = self.timestamp.attributes & 2 != 0;
                let data = Timestamp::new(milliseconds, set_by_host).emit().to_vec();
                return Ok(Value { result: 0, data });
            }
            FeatureId::HOST_IDENTIFIER => {
                // EXHID: the 64-bit form does not exist over fabrics.
                if command.cdw11() & 1 == 0 {
                    return Err(Status::INVALID_FIELD);
                }
                return Ok(Value { result: 0, data: context.host_id.to_vec() });
            }
            _ => return Err(Status::INVALID_FIELD),
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
        if feature == FeatureId::ERROR_RECOVERY {
            check_namespace(command, context)?;
        } else if !is_for_all(command) {
            return Err(Status::FEATURE_NOT_NAMESPACE_SPECIFIC);
        }
        let value = command.cdw11();
        let mut result = 0;
        match feature {
            FeatureId::ARBITRATION => self.arbitration = value,
            // There is one power state.
            FeatureId::POWER_MANAGEMENT if value & 0x1f != 0 => return Err(Status::INVALID_FIELD),
            FeatureId::POWER_MANAGEMENT => self.power = value & 0xff,
            FeatureId::TEMPERATURE_THRESHOLD => self.set_temperature(value)?,
            // No namespace reports deallocated blocks as errors (NSFEAT bit 2).
            FeatureId::ERROR_RECOVERY if ErrorRecovery(value).deallocated_error() => {
                return Err(Status::INVALID_FIELD);
            }
            FeatureId::ERROR_RECOVERY if is_for_all(command) => {
                self.error_recovery = value & 0xffff;
                self.error_recovery_of.clear();
            }
            FeatureId::ERROR_RECOVERY => {
                self.error_recovery_of.insert(command.nsid(), value & 0xffff);
            }
            FeatureId::VOLATILE_WRITE_CACHE => {
                // The cache is what the backing has: it cannot be switched off.
                if !VolatileWriteCache(value).enabled() {
                    return Err(Status::FEATURE_NOT_CHANGEABLE);
                }
            }
            FeatureId::NUMBER_OF_QUEUES => result = self.grant_queues(value, context)?,
            FeatureId::WRITE_ATOMICITY => self.write_atomicity = value & 1,
            FeatureId::ASYNC_EVENT_CONFIGURATION => self.events = supported_events(value, context),
            FeatureId::KEEP_ALIVE_TIMER => self.keep_alive_ms = value,
            FeatureId::TIMESTAMP => {
                let set = Timestamp::parse(data).map_err(|_| Status::INVALID_SGL_LENGTH)?;
                self.timestamp = Timestamp::new(set.milliseconds(), true);
                self.timestamp_at = context.now;
            }
            // HOSTID is what Connect said.
            FeatureId::HOST_IDENTIFIER => return Err(Status::COMMAND_SEQUENCE_ERROR),
            _ => return Err(Status::INVALID_FIELD),
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

    /// The threshold that TMPSEL and THSEL name: the composite temperature (or all sensors), over or under.
    fn temperature(&self, value: u32) -> Result<u16, Status> {
        match (value >> 16 & 0xf, value >> 20 & 3) {
            (0 | 15, 0) => Ok(self.temperature_over),
            (0 | 15, 1) => Ok(self.temperature_under),
            _ => Err(Status::INVALID_FIELD),
        }
    }

    fn set_temperature(&mut self, value: u32) -> Result<(), Status> {
        self.temperature(value)?;
        let threshold = value as u16;
        if value >> 20 & 3 == 0 {
            self.temperature_over = threshold;
        } else {
            self.temperature_under = threshold;
        }
        Ok(())
    }
}

/// The features there are. A discovery controller has those of events and keep alive alone.
pub(crate) fn is_known(feature: FeatureId, discovery: bool, cache_volatile: bool) -> bool {
    match feature {
        FeatureId::ASYNC_EVENT_CONFIGURATION | FeatureId::KEEP_ALIVE_TIMER => true,
        FeatureId::VOLATILE_WRITE_CACHE => !discovery && cache_volatile,
        FeatureId::ARBITRATION
        | FeatureId::POWER_MANAGEMENT
        | FeatureId::TEMPERATURE_THRESHOLD
        | FeatureId::ERROR_RECOVERY
        | FeatureId::NUMBER_OF_QUEUES
        | FeatureId::WRITE_ATOMICITY
        | FeatureId::TIMESTAMP
        | FeatureId::HOST_IDENTIFIER => !discovery,
        _ => false,
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

/// The events of `value` that there are: namespaces or the discovery log, and the SMART warnings, which never occur.
fn supported_events(value: u32, context: Context<'_>) -> AsyncEventMask {
    let asked = AsyncEventMask(value);
    if context.discovery {
        AsyncEventMask(0).with_discovery_changed(asked.discovery_changed())
    } else {
        AsyncEventMask(0)
            .with_smart(asked.smart())
            .with_namespace_changed(asked.namespace_changed())
    }
}
