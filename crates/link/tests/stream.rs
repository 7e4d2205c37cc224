//! The stream as the other side may cut it, and as a broken other side may send it.

use link::*;
use proptest::prelude::*;

fn output() -> impl Strategy<Value = Output> {
    prop::sample::select(&Output::ALL[..])
}

fn data() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(any::<u8>(), 0..300)
}

fn to_guest() -> impl Strategy<Value = ToGuest> {
    prop_oneof![
        (any::<bool>(), data()).prop_map(|(last, part)| ToGuest::Config { last, part }),
        data().prop_map(ToGuest::Stdin),
        Just(ToGuest::StdinEof),
        (1u8..=64).prop_map(ToGuest::Signal),
        (any::<u16>(), any::<u16>()).prop_map(|(rows, cols)| ToGuest::Resize { rows, cols }),
        (output(), any::<u32>()).prop_map(|(output, amount)| ToGuest::Credit { output, amount }),
        output().prop_map(ToGuest::Closed),
        Just(ToGuest::Inspect),
        Just(ToGuest::Activity),
    ]
}

fn to_host() -> impl Strategy<Value = ToHost> {
    prop_oneof![
        Just(ToHost::Ready),
        (output(), data()).prop_map(|(output, bytes)| ToHost::Data(output, bytes)),
        ".{0,40}".prop_map(ToHost::Stats),
        any::<u8>().prop_map(|status| ToHost::Exit(ExitStatus::Exited(status))),
        (1u8..=64).prop_map(|signal| ToHost::Exit(ExitStatus::Signaled(signal))),
        (any::<u16>(), ".{0,40}").prop_map(|(errno, what)| ToHost::CannotRun { errno, what }),
        any::<u32>().prop_map(ToHost::Credit),
        ".{0,40}".prop_map(ToHost::Panic),
        any::<u32>().prop_map(|next| ToHost::Beat { next }),
        ".{0,40}".prop_map(ToHost::Report),
        ".{0,40}".prop_map(ToHost::Activity),
    ]
}

fn through_the_stream<M: Message>(messages: &[M], cuts: &[usize]) -> Vec<M> {
    let mut stream = Vec::new();
    messages.iter().for_each(|message| message.encode(&mut stream));
    let (mut decoder, mut received, mut rest) = (Decoder::new(), Vec::new(), &stream[..]);
    let mut cuts = cuts.iter().cycle();
    while !rest.is_empty() {
        let (piece, tail) = rest.split_at((*cuts.next().unwrap()).min(rest.len()));
        rest = tail;
        let mut piece = piece;
        while let Some(message) = decoder.next(&mut piece).unwrap() {
            received.push(message);
        }
        assert!(piece.is_empty());
    }
    assert!(decoder.is_empty());
    received
}

proptest! {
    #[test]
    fn any_cutting_gives_the_same_messages(
        guest in prop::collection::vec(to_guest(), 0..12),
        host in prop::collection::vec(to_host(), 0..12),
        cuts in prop::collection::vec(1usize..500, 1..20),
    ) {
        prop_assert_eq!(through_the_stream(&guest, &cuts), guest);
        prop_assert_eq!(through_the_stream(&host, &cuts), host);
    }

    #[test]
    fn garbage_is_an_error_or_waits_but_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..2000)) {
        let (mut decoder, mut input) = (Decoder::new(), &bytes[..]);
        while let Ok(Some(_)) = decoder.next::<ToHost>(&mut input) {}
        let (mut decoder, mut input) = (Decoder::new(), &bytes[..]);
        while let Ok(Some(_)) = decoder.next::<ToGuest>(&mut input) {}
        let _ = ConfigAssembler::new().push(true, &bytes);
    }

    #[test]
    fn a_window_never_holds_more_than_its_limit(lengths in prop::collection::vec(0usize..70_000, 0..60)) {
        let mut window = Window::output();
        let mut in_flight = std::collections::VecDeque::new();
        for length in lengths {
            while !window.take(length) {
                let done = in_flight.pop_front().expect("an empty window takes any frame");
                window.give(charge(done)).unwrap();
            }
            in_flight.push_back(length);
            let held: u32 = in_flight.iter().map(|length| charge(*length)).sum();
            prop_assert!(held <= STREAM_WINDOW);
            prop_assert_eq!(window.room() as u32, (STREAM_WINDOW - held).saturating_sub(FRAME_COST));
        }
    }
}

fn example() -> Config {
    Config {
        version: VERSION,
        program: b"/usr/bin/sort".to_vec(),
        argv: vec![b"sort".to_vec(), b"-n".to_vec()],
        env: vec![b"PATH=/usr/bin".to_vec(), b"ODD=\xff\xfe".to_vec()],
        cwd: b"/tmp".to_vec(),
        uid: 1000,
        gid: 1000,
        groups: vec![1000, 27],
        umask: 0o022,
        hostname: b"cob".to_vec(),
        tty: [true, false, true],
        winsize: Some(WinSize { rows: 24, cols: 80 }),
        termios: Some(vec![0; 36]),
        root: Root::NineP { tag: b"root".to_vec() },
        shares: vec![Share { tag: b"share0".to_vec(), path: b"/tmp/out".to_vec() }],
        stats: true,
        rlimits: vec![Rlimit { resource: 7, soft: 1024, hard: u64::MAX }],
        unix_ns: 1_700_000_000_000_000_000,
    }
}

fn reassemble(config: &Config) -> Result<Option<Config>, LinkError> {
    let mut assembler = ConfigAssembler::new();
    let mut result = Ok(None);
    for message in config.to_messages().unwrap() {
        let ToGuest::Config { last, part } = message else { panic!("not a Config frame") };
        result = assembler.push(last, &part);
    }
    result
}

#[test]
fn config_survives_the_trip_in_one_part_and_in_many() {
    let mut config = example();
    assert_eq!(config.to_messages().unwrap().len(), 1);
    assert_eq!(reassemble(&config).unwrap().as_ref(), Some(&config));
    config.argv = (0..50_000).map(|n| n.to_string().into_bytes()).collect();
    assert!(config.to_messages().unwrap().len() > 1);
    assert_eq!(reassemble(&config).unwrap().as_ref(), Some(&config));
}

#[test]
fn config_of_another_version_is_refused() {
    let config = Config { version: VERSION + 1, ..example() };
    assert_eq!(reassemble(&config), Err(LinkError::Malformed(1)));
}

#[test]
fn config_beyond_the_limit_is_refused_at_both_ends() {
    let config = Config { argv: vec![vec![b'x'; MAX_CONFIG]], ..example() };
    assert!(config.to_messages().is_none());
    let mut assembler = ConfigAssembler::new();
    let part = vec![0u8; MAX_PAYLOAD - 1];
    let refused = (0..=MAX_CONFIG / part.len()).any(|_| assembler.push(false, &part).is_err());
    assert!(refused);
}

#[test]
fn a_long_frame_is_refused_by_its_header() {
    let mut input: &[u8] = &[0x81, 1, 0, 1, 0];
    assert_eq!(Decoder::new().next::<ToHost>(&mut input), Err(LinkError::TooLong(65537)));
}

#[test]
fn messages_of_the_wrong_direction_are_refused() {
    let mut bytes = Vec::new();
    ToGuest::StdinEof.encode(&mut bytes);
    assert_eq!(Decoder::new().next::<ToHost>(&mut &bytes[..]), Err(LinkError::UnknownKind(3)));
}

#[test]
fn windows_start_as_the_protocol_says_and_refuse_forged_credit() {
    let mut stdin = Window::stdin();
    assert_eq!(stdin.room(), 0);
    assert!(!stdin.take(0));
    stdin.give(STDIN_WINDOW).unwrap();
    assert!(stdin.take(1));
    assert_eq!(stdin.room() as u32, STDIN_WINDOW - charge(1) - FRAME_COST);
    assert_eq!(stdin.give(charge(1) + 1), Err(LinkError::CreditOverflow));
    assert_eq!(Window::output().give(1), Err(LinkError::CreditOverflow));
}

#[test]
fn shell_status_is_what_a_shell_shows() {
    assert_eq!(ExitStatus::Exited(7).shell_status(), 7);
    assert_eq!(ExitStatus::Signaled(9).shell_status(), 137);
}
