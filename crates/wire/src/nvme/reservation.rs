//! Reservations: what the commands Register, Acquire, Release and Report say and carry, and the
//! notifications.
//!
//! ```text
//!  Register, Acquire   0 CRKEY (64) | 8 NRKEY, PRKEY (64)         Release   0 CRKEY (64)
//!  Report              0 GEN | 4 RTYPE | 5 REGCTL | 9 PTPLS | 64 registrants of 64 bytes
//! ```
//! Of Report there is the extended form alone (EDS = 1): over fabrics host identifiers have 128 bits.
//! Keys are numbers that hosts choose. Errors: an input that ends before what it says. Spec: NVMe
//! base, "Reservation Register command" to "Reservation Report command", "Reservation Notification"
//! (log 80h), "Reservation Notification Mask" and "Reservation Persistence" (features 82h, 83h).

use core::fmt;

use super::command::{Command, IoOpcode, SglDescriptor};
use crate::ParseError;
use crate::field::Field;

codes! {
    /// RTYPE: what a reservation lets whom do.
    pub struct ReservationType(u8) {
        NONE = 0 "no reservation",
        WRITE_EXCLUSIVE = 1 "write exclusive",
        EXCLUSIVE_ACCESS = 2 "exclusive access",
        WRITE_EXCLUSIVE_REGISTRANTS = 3 "write exclusive, registrants only",
        EXCLUSIVE_ACCESS_REGISTRANTS = 4 "exclusive access, registrants only",
        WRITE_EXCLUSIVE_ALL = 5 "write exclusive, all registrants",
        EXCLUSIVE_ACCESS_ALL = 6 "exclusive access, all registrants",
    }
}

codes! {
    /// RREGA: what Register does.
    pub struct RegisterAction(u8) {
        REGISTER = 0 "register",
        UNREGISTER = 1 "unregister",
        REPLACE = 2 "replace",
    }
}

codes! {
    /// CPTPL: whether registrants are to outlive a loss of power.
    pub struct ChangePersist(u8) {
        KEEP = 0 "as it is",
        CLEAR = 2 "they do not outlive a loss of power",
        SET = 3 "they outlive a loss of power",
    }
}

codes! {
    /// RACQA: what Acquire does.
    pub struct AcquireAction(u8) {
        ACQUIRE = 0 "acquire",
        PREEMPT = 1 "preempt",
        PREEMPT_AND_ABORT = 2 "preempt and abort",
    }
}

codes! {
    /// RRELA: what Release does.
    pub struct ReleaseAction(u8) {
        RELEASE = 0 "release",
        CLEAR = 1 "clear",
    }
}

bits! {
    /// CDW10 of Register, Acquire and Release.
    pub struct ReservationDword(u32) {
        fields {
            /// RREGA, RACQA, RRELA.
            action / with_action: 0, 3;
            /// RTYPE, of Acquire and Release.
            kind / with_kind: 8, 8;
            /// CPTPL, of Register.
            persist / with_persist: 30, 2;
        }
        flags {
            /// IEKEY: whatever the current key is.
            ignores_key / with_ignores_key: 3;
        }
    }
}

impl ReservationDword {
    /// CDW10 of a command.
    pub fn of(command: &Command) -> Self {
        Self(command.cdw(10))
    }

    /// RREGA.
    pub const fn register_action(self) -> RegisterAction {
        RegisterAction(self.action() as u8)
    }

    /// RACQA.
    pub const fn acquire_action(self) -> AcquireAction {
        AcquireAction(self.action() as u8)
    }

    /// RRELA.
    pub const fn release_action(self) -> ReleaseAction {
        ReleaseAction(self.action() as u8)
    }

    /// RTYPE.
    pub const fn reservation_type(self) -> ReservationType {
        ReservationType(self.kind() as u8)
    }

    /// CPTPL.
    pub const fn change_persist(self) -> ChangePersist {
        ChangePersist(self.persist() as u8)
    }
}

layout! {
    /// The data of Register and Acquire.
    pub struct ReservationKeys[16] {
        /// CRKEY: the host's key now.
        0 => current: u64,
        /// NRKEY, the new one; of Acquire PRKEY, that of those who are preempted.
        8 => other: u64,
    }
}

layout! {
    /// The data of Release.
    pub struct ReleaseKey[8] {
        /// CRKEY: the host's key.
        0 => current: u64,
    }
}

/// The fields of a Report command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReportRequest {
    /// NUMD + 1, in bytes.
    pub bytes: u64,
    /// EDS: the extended form, with 128-bit host identifiers.
    pub extended: bool,
}

impl ReportRequest {
    /// Reads CDW10 and CDW11.
    pub fn of(command: &Command) -> Self {
        let bytes = (u64::from(command.cdw(10)) + 1) * 4;
        Self { bytes, extended: command.cdw(11) & 1 != 0 }
    }
}

layout! {
    /// The head of what Report returns, in the extended form.
    pub struct ReportHeader[64] {
        /// GEN: counts changes of who is registered.
        0 => generation: u32,
        /// RTYPE.
        4 => kind: ReservationType,
        /// REGCTL: registrants that follow.
        5 => registrants: u16,
        /// PTPLS: 1 if registrants outlive a loss of power.
        9 => persists: u8,
    }
}

layout! {
    /// A registrant in what Report returns, in the extended form.
    pub struct ReportRegistrant[64] {
        /// CNTLID; 0xffff where controllers are dynamic.
        0 => controller_id: u16,
        /// RCSTS, bit 0: it holds the reservation.
        2 => status: u8,
        /// RKEY.
        8 => key: u64,
        /// HOSTID.
        16 => host_id: [u8; 16],
    }
}

impl ReportRegistrant {
    /// CNTLID of a host whose controllers are dynamic.
    pub const DYNAMIC: u16 = 0xffff;

    /// Whether it holds the reservation.
    pub const fn holds(&self) -> bool {
        self.status & 1 != 0
    }
}

/// What Report returns, in the extended form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// Its head, whose count is that of the registrants.
    pub header: ReportHeader,
    /// Who is registered.
    pub registrants: Vec<ReportRegistrant>,
}

impl Report {
    /// The data as bytes; REGCTL is the number of registrants, whatever the header says.
    pub fn emit(&self) -> Vec<u8> {
        let header = ReportHeader { registrants: self.registrants.len() as u16, ..self.header };
        let mut bytes = header.emit().to_vec();
        bytes.extend(self.registrants.iter().flat_map(ReportRegistrant::emit));
        bytes
    }

    /// Reads the data; an error if they end before the last registrant does.
    pub fn parse(bytes: &[u8]) -> Result<Self, ParseError> {
        let header = ReportHeader::parse(bytes)?;
        let count = usize::from(header.registrants);
        let (list, _) = bytes[ReportHeader::SIZE..].as_chunks::<{ ReportRegistrant::SIZE }>();
        let Some(list) = list.get(..count) else {
            let whole = ReportHeader::SIZE + count * ReportRegistrant::SIZE;
            return Err(ParseError::short(whole, bytes.len()));
        };
        let registrants = list.iter().map(|bytes| ReportRegistrant::get(bytes, 0)).collect();
        Ok(Self { header, registrants })
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ReportHeader { generation, kind, .. } = self.header;
        write!(f, "{kind}, generation {generation}, {} registered", self.registrants.len())
    }
}

bits! {
    /// RESCAP of Identify Namespace: what of reservations a namespace has.
    pub struct ReservationCapabilities(u8) {
        fields {
            /// The types that there are, from RTYPE 1 on.
            types / with_types: 1, 6;
        }
        flags {
            /// PTPL: registrants can outlive a loss of power.
            persist / with_persist: 0;
            /// IEKEY is as since revision 1.3.
            ignores_key / with_ignores_key: 7;
        }
    }
}

impl ReservationCapabilities {
    /// Every type, persistence, and IEKEY as it is now.
    pub const ALL: Self = Self(0xff);
}

codes! {
    /// The type of a reservation notification.
    pub struct NotificationType(u8) {
        EMPTY = 0 "nothing",
        REGISTRATION_PREEMPTED = 1 "registration preempted",
        RESERVATION_RELEASED = 2 "reservation released",
        RESERVATION_PREEMPTED = 3 "reservation preempted",
    }
}

layout! {
    /// Reservation notification, log 80h: one of those that wait.
    pub struct ReservationNotification[64] {
        /// Counts notifications of the controller, from 1 on; 0: there is none.
        0 => count: u64,
        /// What happened.
        8 => kind: NotificationType,
        /// How many more wait; 255 for more than 254.
        9 => more: u8,
        /// NSID.
        12 => nsid: u32,
    }
}

impl fmt::Display for ReservationNotification {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { count, kind, more, nsid } = self;
        write!(f, "{kind} count {count} nsid {nsid}, {more} more")
    }
}

bits! {
    /// Reservation notification mask, feature 82h: what a host does not want to be told.
    pub struct NotificationMask(u32) {
        fields {}
        flags {
            /// REGPRE.
            registration_preempted / with_registration_preempted: 1;
            /// RESREL.
            reservation_released / with_reservation_released: 2;
            /// RESPRE.
            reservation_preempted / with_reservation_preempted: 3;
        }
    }
}

impl NotificationMask {
    /// Whether notifications of this type are not wanted.
    pub const fn masks(self, kind: NotificationType) -> bool {
        kind.0 >= 1 && kind.0 <= 3 && self.0 & 1 << kind.0 != 0
    }
}

bits! {
    /// Reservation persistence, feature 83h.
    pub struct ReservationPersistence(u32) {
        fields {}
        flags {
            /// PTPL: registrants outlive a loss of power.
            persists / with_persists: 0;
        }
    }
}

impl Command {
    fn reservation(opcode: IoOpcode, nsid: u32, dword: ReservationDword, bytes: usize) -> Self {
        Self::new(opcode.0)
            .with_nsid(nsid)
            .with_sgl(SglDescriptor::transport(bytes as u32))
            .with_cdw(10, dword.0)
    }

    /// Reservation Register; its data are [`ReservationKeys`].
    pub fn reservation_register(nsid: u32, action: RegisterAction, cptpl: ChangePersist) -> Self {
        let dword = ReservationDword(0).with_action(action.0.into()).with_persist(cptpl.0.into());
        Self::reservation(IoOpcode::RESERVATION_REGISTER, nsid, dword, ReservationKeys::SIZE)
    }

    /// Reservation Acquire; its data are [`ReservationKeys`].
    pub fn reservation_acquire(nsid: u32, action: AcquireAction, kind: ReservationType) -> Self {
        let dword = ReservationDword(0).with_action(action.0.into()).with_kind(kind.0.into());
        Self::reservation(IoOpcode::RESERVATION_ACQUIRE, nsid, dword, ReservationKeys::SIZE)
    }

    /// Reservation Release; its data are a [`ReleaseKey`].
    pub fn reservation_release(nsid: u32, action: ReleaseAction, kind: ReservationType) -> Self {
        let dword = ReservationDword(0).with_action(action.0.into()).with_kind(kind.0.into());
        Self::reservation(IoOpcode::RESERVATION_RELEASE, nsid, dword, ReleaseKey::SIZE)
    }

    /// Reservation Report in the extended form: `bytes` (a multiple of 4, not 0) of a [`Report`].
    pub fn reservation_report(nsid: u32, bytes: u32) -> Self {
        debug_assert!(bytes >= 4 && bytes.is_multiple_of(4));
        Self::new(IoOpcode::RESERVATION_REPORT.0)
            .with_nsid(nsid)
            .with_sgl(SglDescriptor::transport(bytes))
            .with_cdw(10, bytes / 4 - 1)
            .with_cdw(11, 1)
    }

    /// With IEKEY.
    #[must_use]
    pub fn with_ignored_key(self) -> Self {
        self.with_cdw(10, ReservationDword::of(&self).with_ignores_key(true).0)
    }
}

#[cfg(test)]
mod tests;
