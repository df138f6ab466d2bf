//! Dialogues of the target connection with a scripted host.
