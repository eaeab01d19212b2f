// SPDX-License-Identifier: MIT OR Apache-2.0
//! The body of an answer that ends when the token of its client is removed: followed output must not go on then.

use super::tokens::TokenLife;
use axum::body::{Body, Bytes, HttpBody};
use hyper::body::Frame;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

/// The body. The client notices that it is incomplete.
pub(super) struct RevocableBody {
    body: Body,
    revoked: Pin<Box<dyn Future<Output = ()> + Send>>,
}

impl RevocableBody {
    /// A body that ends with the token.
    pub(super) fn new(body: Body, life: TokenLife) -> RevocableBody {
        RevocableBody { body, revoked: Box::pin(life.end()) }
    }
}

impl HttpBody for RevocableBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if self.revoked.as_mut().poll(context).is_ready() {
            // The future is not polled again: the connection ends with this error.
            return Poll::Ready(Some(Err(axum::Error::new(io::Error::from(io::ErrorKind::PermissionDenied)))));
        }
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> hyper::body::SizeHint {
        self.body.size_hint()
    }
}
