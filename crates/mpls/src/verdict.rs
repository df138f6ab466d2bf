//! What is done with a frame: sent, delivered, handed to the associated channel or dropped.
//!
//! A verdict borrows from the frame that came: nothing is copied or allocated here, but for what has
//! to wait for other frames. What goes in front of the frame stays in the router
//! ([`Router::front`](crate::Router::front)): headers are written in few bytes at a time, and a processor that has to
//! move such bytes in larger pieces right after waits until they have left its store buffer. Whoever asked
//! carries it out, and copies the bytes once, to where it sends from. Each reason to drop is stated
//! once, as a name, a sentence and a counter. Spec: none; the reasons name theirs where they arise.

use contract::{LinkId, drops};
use wire::pseudowire::AssociatedChannelHeader;

use crate::protection::Way;
use crate::pseudowire::PseudowireId;

/// What is to be done with a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict<'a> {
    /// A frame of the router's front and `rest` leaves by a core port.
    Send { port: LinkId, rest: &'a [u8] },
    /// The frame of a customer's, from its destination address on, leaves by a circuit.
    Deliver { circuit: LinkId, frame: &'a [u8] },
    /// Such a frame, whose first bytes are others: the router's front and `rest` are all of it.
    DeliverChanged { circuit: LinkId, rest: &'a [u8] },
    /// A message for the end of a pseudowire itself, which came by this path of the other end's.
    Channel {
        pseudowire: PseudowireId,
        way: Way,
        header: AssociatedChannelHeader,
        message: &'a [u8],
    },
    /// A customer's frame goes by all that the classes of its circuit go by: for each of these
    /// [`Router::copy_to`](crate::Router::copy_to) says how.
    Copy,
    /// It came before others and was copied; [`Router::poll_early`](crate::Router::poll_early) has it
    /// later.
    Wait,
    /// Nothing; it was counted.
    Drop(DropReason),
}

drops! {
    /// Why a frame goes nowhere.
    pub enum DropReason;
    /// Frames that went nowhere, by reason.
    pub struct Drops;
    /// Ended before its Ethernet header, control word or session's header did.
    Runt runt,
    /// Between the two ends of a cable, like PAUSE and LACP.
    BridgeReserved bridge_reserved,
    /// Of or for a circuit that is not there.
    NoCircuit no_circuit,
    /// Of a circuit that has neither a pseudowire nor a tunnel.
    NoPseudowire no_pseudowire,
    /// With labels, by a port that is not of the core.
    NotCore not_core,
    /// Where to send it is not known, or that port is not there.
    NoNextHop no_next_hop,
    /// At which address the next router is on its link is not known now.
    Unresolved unresolved,
    /// Larger than what the next hop takes.
    OverMtu over_mtu,
    /// Larger than what the circuit takes.
    OverCircuitMtu over_circuit_mtu,
    /// Ended before its label stack did.
    Truncated truncated,
    /// More labels to pop than are looked at.
    TooDeep too_deep,
    /// A special label that nobody assigned, or where it may not stand.
    ReservedLabel reserved_label,
    /// A special label for which nobody is here.
    SpecialLabel special_label,
    /// Explicit null, by a port where no tunnel ends so.
    ExplicitNull explicit_null,
    /// A label that is nobody's.
    UnknownLabel unknown_label,
    /// A label that was somebody's a moment ago.
    Quarantined quarantined,
    /// Its hops were used up.
    TtlExpired ttl_expired,
    /// Its last label would be popped, and what is below it is not known.
    BottomPopped bottom_popped,
    /// The label of a pseudowire above another one.
    NotBottom not_bottom,
    /// The label of a pseudowire whose packets do not come by this port.
    WrongPort wrong_port,
    /// The label of a pseudowire in another tunnel than its own.
    WrongTunnel wrong_tunnel,
    /// Neither a control word nor a channel header where one of them must be.
    ControlWordMismatch control_word_mismatch,
    /// A message of the associated channel in another version.
    ChannelVersion channel_version,
    /// Behind one that was delivered, or that one again.
    Late late,
    /// Of a circuit that is split, and of no class that goes anywhere.
    NoClass no_class,
    /// With a key or a session ID that is no tunnel's here.
    NoTunnel no_tunnel,
    /// With a header of GRE or L2TP that is none, or one that nobody here knows.
    Misformed misformed,
    /// In GRE, and no frame of Ethernet.
    NotEthernet not_ethernet,
    /// With another cookie than its session's.
    WrongCookie wrong_cookie,
}
