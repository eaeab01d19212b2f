// SPDX-License-Identifier: MIT OR Apache-2.0
//! Events of `poll`: `poll.h`.

constants! { general as u16 {
    POLLERR, POLLHUP, POLLIN, POLLNVAL, POLLOUT, POLLPRI, POLLRDHUP, POLLRDNORM, POLLWRBAND, POLLWRNORM,
} }
