//! What holds between the daemon and whatever is at the other end of a stream.

mod connection;
mod dock;
mod hostile;
