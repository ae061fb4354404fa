//! UDP sockets with an in-memory twin; all OS-specific code.
