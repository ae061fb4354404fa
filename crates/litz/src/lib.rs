//! One connection over every link and every core, each strand encrypted.
