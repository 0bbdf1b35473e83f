#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| turnwise_fuzz::parsers::world_files(data));
