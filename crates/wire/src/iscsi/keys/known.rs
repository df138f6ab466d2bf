//! The keys that the standard knows. Their names are case-sensitive. Spec: RFC 7143 clauses 12 and
//! 13; markers are of RFC 3720, and what is left of them is how to refuse them (clause 13.25).

use core::fmt;

macro_rules! keys {
    ($($(#[$meta:meta])* $key:ident = $name:literal,)*) => {
        /// A key of the standard.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Key {
            $($(#[$meta])* $key,)*
        }

        impl Key {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$key,)*];

            /// The key of this name, if the standard knows it.
            pub fn from_name(name: &str) -> Option<Self> {
                match name {
                    $($name => Some(Self::$key),)*
                    _ => None,
                }
            }

            /// The name, as it stands in a text.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$key => $name,)*
                }
            }
        }
    };
}

keys! {
    /// Digests of headers, in the order of liking.
    HeaderDigest = "HeaderDigest",
    /// Digests of data, in the order of liking.
    DataDigest = "DataDigest",
    /// Connections of a session.
    MaxConnections = "MaxConnections",
    /// Whether all data of a command but the immediate have to be asked for.
    InitialR2T = "InitialR2T",
    /// Whether data may come with their command.
    ImmediateData = "ImmediateData",
    /// The longest data segment that the sender of this key receives.
    MaxRecvDataSegmentLength = "MaxRecvDataSegmentLength",
    /// The longest sequence of Data-In, or of Data-Out that an R2T asks for.
    MaxBurstLength = "MaxBurstLength",
    /// The most data of a command that are not asked for.
    FirstBurstLength = "FirstBurstLength",
    /// Seconds from a connection's unplanned end before one may come back.
    DefaultTime2Wait = "DefaultTime2Wait",
    /// Seconds, from then on, for which tasks are kept.
    DefaultTime2Retain = "DefaultTime2Retain",
    /// R2Ts of a task that may be unanswered at once.
    MaxOutstandingR2T = "MaxOutstandingR2T",
    /// Whether the data of a sequence come in order.
    DataPduInOrder = "DataPDUInOrder",
    /// Whether sequences come in order.
    DataSequenceInOrder = "DataSequenceInOrder",
    /// How much of a fault the ends can mend.
    ErrorRecoveryLevel = "ErrorRecoveryLevel",
    /// Normal or discovery.
    SessionType = "SessionType",
    /// Who asks.
    InitiatorName = "InitiatorName",
    /// Who is asked.
    TargetName = "TargetName",
    /// What people call the initiator.
    InitiatorAlias = "InitiatorAlias",
    /// What people call the target.
    TargetAlias = "TargetAlias",
    /// Where a target is.
    TargetAddress = "TargetAddress",
    /// The portal group of the address that was asked.
    TargetPortalGroupTag = "TargetPortalGroupTag",
    /// Methods to prove who one is, in the order of liking.
    AuthMethod = "AuthMethod",
    /// When a target reports the end of tasks that were aborted.
    TaskReporting = "TaskReporting",
    /// Which of the later functions both ends know.
    IscsiProtocolLevel = "iSCSIProtocolLevel",
    /// Markers to the target: no longer.
    OfMarker = "OFMarker",
    /// Markers to the initiator: no longer.
    IfMarker = "IFMarker",
    /// How far apart these are: no longer.
    OfMarkInt = "OFMarkInt",
    /// How far apart these are: no longer.
    IfMarkInt = "IFMarkInt",
    /// Which targets there are.
    SendTargets = "SendTargets",
    /// CHAP: the digests, in the order of liking; or the one that was chosen.
    ChapA = "CHAP_A",
    /// CHAP: the identifier of a challenge.
    ChapI = "CHAP_I",
    /// CHAP: the challenge.
    ChapC = "CHAP_C",
    /// CHAP: the name.
    ChapN = "CHAP_N",
    /// CHAP: the response.
    ChapR = "CHAP_R",
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
