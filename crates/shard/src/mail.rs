//! Mail: what shards write to each other, and what the control thread orders and is told.
//!
//! Mail is first in, first out between two writers. An [`Order`] is answered exactly once, with its
//! number; a shard that cannot carry it out says why. A change of the configuration is a sequence
//! of orders, each sent to all shards and answered by all before the next (see
//! docs/decisions/0005-apply.md): so no shard uses what another does not know yet, except for mail
//! that was under way, which every room tolerates.

use block::record::passed_variant;
use block::{Completion, Request, ShardId, VolumeId};
use contract::{DiskFacts, DiskId, HostEvent, HostNews, LinkId, ListenerId, VirtualLinks};
use mpls::{Change, RouterId, RouterReport};
use reservation::{PathGroup, PathState, Paths, Reservation, SetBy, replica};
use volume::Layout;
use volume::gate::{DiskError, Health};

use crate::client::InternalClient;
use crate::protocols::{
    Export, ExportKey, Listening, NamedHosts, ProtocolMessage, StoreKey, StoredValue,
};
use crate::remote::ImportSettings;
use crate::report::Report;

/// A letter.
#[derive(Debug)]
pub enum Mail {
    /// Between the volumes of two shards.
    Volume(volume::Message),
    /// Between the machines of one protocol on two shards.
    Protocol(ProtocolMessage),
    /// Between a shard and the one that reaches a disk for it. Boxed, so that other mail stays small.
    Disk(Box<DiskMessage>),
    /// Between two shards: reservations.
    Reservation(replica::Message<Reservation>),
    /// Between two shards: states of paths.
    Paths(replica::Message<Paths>),
    /// From the control thread: what [`News::Store`] asked for is durable, or could not be made so.
    Stored {
        /// Which value.
        key: StoreKey,
        /// Which version of it.
        version: u64,
        /// Whether it is durable.
        stored: bool,
    },
    /// From the control thread.
    Order {
        /// Given back in the answer.
        number: u64,
        /// What to do.
        order: Box<Order>,
    },
    /// From another thread of this process: an internal client of the shard has something to look for. It
    /// does so at the end of the turn.
    Knock,
    /// To the control thread: an order is carried out.
    Answer {
        /// The order's.
        number: u64,
        /// How it went.
        answer: Box<Answer>,
    },
    /// To the control thread: something that people should know.
    News(Box<News>),
}

impl Mail {
    /// Where tests record what they passed through: this kind of mail was.
    #[inline]
    pub(crate) fn passed(&self) {
        passed_variant("mail", self);
        match self {
            Mail::Volume(message) => passed_variant("mail", message),
            Mail::Protocol(message) => {
                passed_variant("mail", message);
                match message {
                    ProtocolMessage::Nvme(message) => passed_variant("mail", message),
                    ProtocolMessage::Aoe(message) => passed_variant("mail", message),
                    ProtocolMessage::Iscsi(message) => passed_variant("mail", message),
                }
            }
            Mail::Disk(message) => passed_variant("mail", &**message),
            Mail::Reservation(message) => passed_variant("mail", message),
            Mail::Paths(message) => passed_variant("mail", message),
            Mail::Stored { key, .. } => passed_variant("mail", key),
            Mail::Knock => passed_variant("mail", self),
            Mail::Order { order, .. } => passed_variant("mail", &**order),
            Mail::Answer { answer, .. } => passed_variant("mail", &**answer),
            Mail::News(news) => {
                passed_variant("mail", &**news);
                match &**news {
                    News::Import(_, event, _) => passed_variant("mail", event),
                    News::Host(HostNews { event, .. }) => {
                        passed_variant("mail", event);
                        if let HostEvent::Refused(why) = event {
                            passed_variant("mail", why);
                        }
                    }
                    _ => {}
                }
            }
        }
    }
}

/// What shards write to each other of a disk that one of them reaches for all.
#[derive(Debug)]
pub enum DiskMessage {
    /// To the shard that reaches the disk.
    Ask(DiskId, Request),
    /// From it, to the one that asked.
    Done(Completion),
}

/// What the control thread wants.
#[derive(Debug)]
pub enum Order {
    /// A disk of this process is open.
    AddDisk {
        /// Its number.
        disk: DiskId,
        /// What is known of it.
        facts: DiskFacts,
    },
    /// A remote disk is to be reached; answered by [`Answer::Import`], once connected or given up.
    AddImport {
        /// Its number.
        disk: DiskId,
        settings: Box<ImportSettings>,
        /// The shard that reaches it for all; `None`: each does by itself. The others answer at once,
        /// and have the disk with [`AddReached`](Self::AddReached).
        by: Option<ShardId>,
    },
    /// What the shard found that reaches a disk for all: the others ask that one from now on.
    AddReached { disk: DiskId, facts: DiskFacts },
    /// A disk has another size. What a failure protects stays protected.
    FollowDisk { disk: DiskId, facts: DiskFacts },
    /// A disk was reopened; it takes writes again.
    RenewDisk {
        /// Its number.
        disk: DiskId,
        /// What is known of it now.
        facts: DiskFacts,
    },
    /// A disk that was added takes no writes until it is reopened: it failed in an earlier life of
    /// this server.
    ProtectDisk { disk: DiskId, failure: block::Failure },
    /// A disk is not used any more.
    RemoveDisk(DiskId),
    /// A volume over disks that were added.
    AddVolume {
        /// Its number.
        volume: VolumeId,
        /// How its members make it.
        layout: Layout,
        /// Who may use it, as it was stored.
        reservation: Reservation,
    },
    /// A volume has another size.
    ResizeVolume {
        /// Its number.
        volume: VolumeId,
        /// The same members, longer or shorter.
        layout: Layout,
    },
    /// Let no new request go to the volume; answered when nothing of it is below on this shard.
    QuiesceVolume(VolumeId),
    /// A volume that was quiesced, or was to be, is used again; one that was forgotten is added.
    ResumeVolume { volume: VolumeId, layout: Layout, reservation: Reservation },
    /// Forget a quiesced volume.
    ForgetVolume(VolumeId),
    /// Free a volume, whoever holds it; answered once that is stored and in force on every shard.
    ClearReservation(VolumeId),
    /// The states of groups of listeners as they were stored, before there is a listener.
    RestorePaths(Paths),
    /// Groups of listeners are to be in these states; answered once that is stored and in force on
    /// every shard, and nothing is below that came by one that does not serve.
    SetPaths(Vec<(PathGroup, PathState)>),
    /// These hosts, and no others, have a name that counts whatever they come by.
    SetNamedHosts(Box<NamedHosts>),
    /// Hosts are shown something, or are shown it differently; refused where its name is taken.
    /// They are told by [`AnnounceExports`](Self::AnnounceExports), which follows.
    SetExport(Export),
    /// Hosts are shown something no more; answered when nothing of it is below that its removal
    /// waits for.
    RemoveExport(ExportKey),
    /// Every shard has answered what was ordered of exports: hosts are told what is new. Told
    /// earlier they would ask at once, and a shard that does not know it yet might answer.
    AnnounceExports,
    /// All of the first configuration has been ordered: from now on what hosts do not find is
    /// refused for good.
    ConfigurationComplete,
    /// A listener is about to listen; its connections speak this.
    AddListener { listener: ListenerId, listening: Listening },
    /// A listener is gone: its connections close, too.
    RemoveListener(ListenerId),
    /// From now on this machine carries virtual links over those of the driver. There is one, given
    /// before anybody uses its links.
    SetVirtualLinks(Box<dyn VirtualLinks>),
    /// A router is changed, which is there from its first change on; refused where the change does
    /// not fit what it has. A link should be its port before the driver has it: what comes earlier
    /// is for nobody.
    Route(RouterId, Box<Change>),
    /// Tell how things are with a router; answered by [`Answer::Router`].
    ReportRouter(RouterId),
    /// Close the sessions of a host, which may connect again; answered by [`Answer::Closed`].
    CloseSessions { host: String },
    /// Finish what is below, then close all connections; answered when all are gone.
    Drain,
    /// Tell the targets of all imports that we leave; answered when those have answered, or after
    /// [`LEAVE`](block::limits::LEAVE). Comes once every shard has drained: what one owns for others
    /// may ask its imports until then.
    Leave,
    /// Somebody asks volumes from here on until it is over.
    AddClient(Box<dyn InternalClient>),
    /// Tell how things are.
    Report,
}

/// How an order went.
#[derive(Debug)]
pub enum Answer {
    /// It is carried out.
    Done,
    /// A remote disk is connected, or why it is not.
    Import(Result<DiskFacts, String>),
    /// How things are.
    Report(Box<Report>),
    /// How things are with a router, as far as this shard has seen its frames; `None`: there is no
    /// such router.
    Router(Option<Box<RouterReport>>),
    /// So many sessions were closed.
    Closed(u32),
    /// It cannot be carried out.
    Refused(String),
}

/// What happened to a remote disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ImportEvent {
    /// For the first time or again.
    Reached,
    Lost,
    /// One of several ways to it is missing.
    WayLost,
    /// It is not as it was: its size, for one.
    Changed,
    /// It is reached, and cannot be used any more.
    Unusable,
    /// Somebody who says that he is the disk is not.
    Refused,
}

/// What a shard tells unasked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum News {
    /// A disk is well, slow or stuck, seen from this shard.
    DiskHealth(DiskId, Health),
    /// Something went wrong at a disk; not each time that it does.
    DiskError(DiskError),
    /// A disk takes no more writes until it is reopened.
    DiskProtected(DiskId, block::Failure),
    /// A remote disk was lost, is back, or has another size; in words.
    Import(DiskId, ImportEvent, String),
    /// A link of the driver's is up, or down.
    Link(LinkId, bool),
    /// What became of a pseudowire of a router.
    Route(RouterId, mpls::Event),
    /// What this shard knows of a remote disk now, which is not what it knew before: volumes on it
    /// may have to follow.
    DiskChanged(DiskId, DiskFacts),
    /// A value that initiators changed is to be made durable; then [`Mail::Stored`] is to be sent
    /// to the shard that tells.
    Store {
        /// Which value.
        key: StoreKey,
        /// Which version of it.
        version: u64,
        value: StoredValue,
    },
    /// A group of listeners is in another state; told by one shard.
    Path { group: PathGroup, was: PathState, is: PathState, by: SetBy },
    /// Something about what hosts are shown that people should look at.
    Warning(String),
    /// A host came, left or was refused.
    Host(HostNews),
    /// A connection was closed for a reason that its peer or an operator should hear of.
    Closed {
        /// Its other side.
        peer: std::net::SocketAddr,
        /// Why.
        reason: String,
    },
}
