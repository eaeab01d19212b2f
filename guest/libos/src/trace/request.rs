// SPDX-License-Identifier: MIT OR Apache-2.0
//! Requests of `ioctl`: their names and arguments.

use alloc::format;
use alloc::string::String;

use super::argument::{Argument, show_pointee};
use super::flags::{CONTROL_MODES, INPUT_MODES, LOCAL_MODES, OUTPUT_MODES};
use super::structures::{at, number32, word32};
use super::text::{copy, hexadecimal};
use super::{choices, structures};

/// The argument of a request.
#[derive(Clone, Copy)]
enum Takes {
    Nothing,
    /// A number.
    Number,
    /// A number with a name.
    Choice(&'static choices::Choices),
    /// The address of a number.
    NumberAt,
    /// The address of terminal settings, which the request sets or gets.
    Settings,
    SettingsBack,
    /// The same for a window size.
    Window,
    WindowBack,
}

use Takes::{Choice, Nothing, Number, NumberAt, Settings, SettingsBack, Window, WindowBack};

const QUEUES: choices::Choices = choices::Choices(&[(0, "TCIFLUSH"), (1, "TCOFLUSH"), (2, "TCIOFLUSH")], "TC???FLUSH");
const FLOWS: choices::Choices = choices::Choices(&[(0, "TCOOFF"), (1, "TCOON"), (2, "TCIOFF"), (3, "TCION")], "TC????");

const REQUESTS: &[(u32, &str, Takes)] = &[
    (0x5401, "TCGETS", SettingsBack),
    (0x5402, "TCSETS", Settings),
    (0x5403, "TCSETSW", Settings),
    (0x5404, "TCSETSF", Settings),
    (0x5409, "TCSBRK", Number),
    (0x540a, "TCXONC", Choice(&FLOWS)),
    (0x540b, "TCFLSH", Choice(&QUEUES)),
    (0x540c, "TIOCEXCL", Nothing),
    (0x540d, "TIOCNXCL", Nothing),
    (0x540e, "TIOCSCTTY", Number),
    (0x540f, "TIOCGPGRP", NumberAt),
    (0x5410, "TIOCSPGRP", NumberAt),
    (0x5411, "TIOCOUTQ", NumberAt),
    (0x5413, "TIOCGWINSZ", WindowBack),
    (0x5414, "TIOCSWINSZ", Window),
    (0x541b, "FIONREAD", NumberAt),
    (0x5421, "FIONBIO", NumberAt),
    (0x5424, "TIOCGETD", NumberAt),
    (0x5425, "TCSBRKP", Number),
    (0x5429, "TIOCGSID", NumberAt),
    (0x5450, "FIONCLEX", Nothing),
    (0x5451, "FIOCLEX", Nothing),
    (0x5452, "FIOASYNC", NumberAt),
    (0x802c_542a, "TCGETS2", SettingsBack),
    (0x402c_542b, "TCSETS2", Settings),
    (0x402c_542c, "TCSETSW2", Settings),
    (0x402c_542d, "TCSETSF2", Settings),
    (0x4004_9409, "FICLONE", Number),
];

/// A request's name; the fields of its number if it has none.
pub(super) fn name(request: u32) -> String {
    if let Some((_, name, _)) = REQUESTS.iter().find(|(number, ..)| *number == request) {
        return (*name).into();
    }
    let direction = ["_IOC_NONE", "_IOC_WRITE", "_IOC_READ", "_IOC_READ|_IOC_WRITE"][(request >> 30) as usize];
    let [kind, number, size] = [request >> 8 & 0xff, request & 0xff, request >> 16 & 0x3fff].map(|part| hexadecimal(part.into()));
    format!("_IOC({direction}, {kind}, {number}, {size})")
}

/// Formats a request's argument.
pub(super) fn argument(request: u32, argument: &Argument<'_>, text: &mut String) {
    let value = argument.value();
    let takes = REQUESTS.iter().find(|(number, ..)| *number == request).map(|(.., takes)| *takes);
    match takes {
        None => *text += &hexadecimal(value),
        Some(Nothing) => {}
        Some(Number) => *text += &format!("{}", value as i32),
        Some(Choice(names)) => *text += &names.show(value),
        Some(NumberAt) => show_pointee(argument, text, number32),
        Some(SettingsBack) => show_pointee(argument, text, settings),
        Some(WindowBack) => show_pointee(argument, text, structures::window),
        Some(Settings) => *text += &settings(value),
        Some(Window) => *text += &structures::window(value),
    }
}

/// Formats a terminal's settings, as far as strace does.
fn settings(address: u64) -> String {
    const MODES: usize = 16;
    at(address, |address| {
        let bytes = copy(address, MODES)?;
        let [input, output, control, local] = [0, 4, 8, 12].map(|offset| u64::from(word32(&bytes, offset)));
        let delays = [("NL", 8, 1), ("CR", 9, 3), ("TAB", 11, 3), ("BS", 13, 1), ("VT", 14, 1), ("FF", 15, 1)];
        let delays: String = delays.into_iter().map(|(name, shift, mask)| format!("{name}{}|", output >> shift & mask)).collect();
        let output = OUTPUT_MODES.show(output & !0xff00);
        let (input, control, local) = (INPUT_MODES.show(input), CONTROL_MODES.show(control), LOCAL_MODES.show(local));
        Some(format!("{{c_iflag={input}, c_oflag={delays}{output}, c_cflag={control}, c_lflag={local}, ...}}"))
    })
}

#[cfg(test)]
mod tests {
    use super::name;

    #[test]
    fn requests_have_names_or_are_taken_apart() {
        assert_eq!((name(0x5413), name(0x1234)), ("TIOCGWINSZ".into(), "_IOC(_IOC_NONE, 0x12, 0x34, 0)".into()));
        assert_eq!(name(0xc020_660b), "_IOC(_IOC_READ|_IOC_WRITE, 0x66, 0xb, 0x20)");
    }
}
