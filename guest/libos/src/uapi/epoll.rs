// SPDX-License-Identifier: MIT OR Apache-2.0
//! Events of epoll: `eventpoll.h`.

constants! { general as u32 {
    EPOLLET, EPOLLEXCLUSIVE, EPOLLONESHOT, EPOLLWAKEUP, EPOLL_CTL_ADD, EPOLL_CTL_DEL, EPOLL_CTL_MOD,
} }
