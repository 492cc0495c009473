//! In place of TLS where the feature `tls` is off: there is no value of these types.

use std::io;

use crate::Result;
use crate::core::Loss;

#[derive(Clone, Debug)]
pub(crate) enum ClientSettings {}

pub(crate) enum Security {}

pub(super) enum Session {}

impl Security {
    pub(crate) fn load(settings: ClientSettings) -> Result<Self> {
        match settings {}
    }

    pub(super) fn session(&self, _host: &str) -> Result<Session, Loss> {
        match *self {}
    }
}

impl Session {
    pub(super) fn is_handshaking(&self) -> bool {
        match *self {}
    }

    pub(super) fn shake_hands<T>(&mut self, _tcp: &mut T) -> io::Result<bool> {
        match *self {}
    }

    pub(super) fn read<T>(&mut self, _tcp: &mut T, _buffer: &mut [u8]) -> io::Result<usize> {
        match *self {}
    }

    pub(super) fn write<T>(&mut self, _tcp: &mut T, _bytes: &[u8]) -> io::Result<usize> {
        match *self {}
    }

    pub(super) fn send<T>(&mut self, _tcp: &mut T) -> io::Result<()> {
        match *self {}
    }

    pub(super) fn end<T>(&mut self, _tcp: &mut T) {
        match *self {}
    }
}
