#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| turnwise_fuzz::parsers::alfworld_game(data));
