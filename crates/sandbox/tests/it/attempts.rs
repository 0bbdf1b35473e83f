//! Attempts in Python to leave a sandbox.
//!
//! Each prints `ESCAPED` if it succeeds and `refused` if it fails. `escapes.rs` fills in
//! placeholders such as `{SECRET}` and `{PORT}`, and provides the host's side.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Expect {
    /// It prints `refused` and exits with 0.
    Refused,
    Time,
    Memory,
    Output,
    /// It ends in any way, with or without output.
    Ended,
}

/// Whether the same code succeeds outside a sandbox, which the test checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Control {
    Succeeds,
    /// It would harm the machine, or needs root.
    NotRun,
}

pub(crate) struct Attempt {
    pub(crate) name: &'static str,
    pub(crate) code: &'static str,
    pub(crate) expect: Expect,
    pub(crate) control: Control,
}

const fn refused(name: &'static str, code: &'static str) -> Attempt {
    Attempt { name, code, expect: Expect::Refused, control: Control::NotRun }
}

const fn controlled(name: &'static str, code: &'static str) -> Attempt {
    Attempt { name, code, expect: Expect::Refused, control: Control::Succeeds }
}

const fn ends(name: &'static str, expect: Expect, code: &'static str) -> Attempt {
    Attempt { name, code, expect, control: Control::NotRun }
}

pub(crate) const PRELUDE: &str = r#"
import ctypes, errno, mmap, os, platform, resource, signal, socket, subprocess, sys, threading, time
libc = ctypes.CDLL(None, use_errno=True)
arm = platform.machine() == "aarch64"
def check(result):
    if result == -1:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result
def call(x86, arm64, *arguments):
    return check(libc.syscall(ctypes.c_long(arm64 if arm else x86), *arguments))
def attempt(action):
    try:
        print("ESCAPED", action(), flush=True)
    except (OSError, MemoryError, ValueError, RuntimeError, AttributeError, LookupError, subprocess.SubprocessError) as error:
        print("refused", type(error).__name__, error, flush=True)
def need(condition):
    if not condition:
        raise OSError("nothing was reached")
    return condition
"#;

#[rustfmt::skip]
pub(crate) const ATTEMPTS: &[Attempt] = &[
    // Files outside.
    controlled("read a file of the system", "attempt(lambda: open('/etc/passwd').read())"),
    controlled("read a file of the host", "attempt(lambda: open('{SECRET}').read())"),
    controlled("list folders of the host", "attempt(lambda: need(set(os.listdir('/')) & {'proc', 'home', 'root', 'var'} and os.listdir('/proc')))"),
    refused("leave by dots", "attempt(lambda: os.listdir('/work/../../../../home'))"),
    controlled("write a file of the host", "attempt(lambda: open('{SECRET}', 'a').write('x'))"),
    refused("write a program", "attempt(lambda: open('/usr/bin/turnwise-escaped', 'w').write('x'))"),
    refused("write settings", "attempt(lambda: open('/etc/turnwise-escaped', 'w').write('x'))"),
    refused("write the root", "attempt(lambda: open('/turnwise-escaped', 'w').write('x'))"),
    refused("remove a program", "attempt(lambda: os.remove('/usr/bin/env'))"),
    refused("change a mode", "attempt(lambda: os.chmod('/usr/bin', 0o777))"),
    refused("rename a folder", "attempt(lambda: os.rename('/usr', '/tmp/usr'))"),
    controlled("follow a symbolic link", "import tempfile\nlink = tempfile.mktemp()\nos.symlink('{SECRET}', link)\nattempt(lambda: open(link).read())"),
    refused("make a hard link to a program", "attempt(lambda: os.link('/usr/bin/env', '/work/env'))"),
    refused("open a file by its handle", "attempt(lambda: call(304, 265, 0, b'\\0' * 64, 0))"),
    refused("read the parent's memory as a file", "attempt(lambda: open('/proc/{PID}/mem', 'rb').read(1))"),
    // The network.
    controlled("connect by IPv4", "attempt(lambda: socket.create_connection(('127.0.0.1', {PORT}), 2))"),
    refused("connect by IPv6", "attempt(lambda: socket.socket(socket.AF_INET6).connect(('::1', {PORT})))"),
    controlled("send a datagram", "attempt(lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('127.0.0.1', {PORT})))"),
    controlled("listen", "attempt(lambda: socket.create_server(('127.0.0.1', 0)))"),
    refused("open a raw socket", "attempt(lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP))"),
    refused("open a packet socket", "attempt(lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW))"),
    controlled("open a netlink socket", "attempt(lambda: socket.socket(socket.AF_NETLINK, socket.SOCK_RAW))"),
    controlled("connect to a socket file", "attempt(lambda: socket.socket(socket.AF_UNIX).connect('{SOCKET}'))"),
    controlled("connect to an abstract socket", "attempt(lambda: socket.socket(socket.AF_UNIX).connect('\\0{ABSTRACT}'))"),
    refused("open a virtual socket", "attempt(lambda: socket.socket(socket.AF_VSOCK))"),
    refused("make a pair of network sockets", "attempt(lambda: socket.socketpair(socket.AF_INET))"),
    // Processes of others.
    controlled("signal the parent", "attempt(lambda: [os.kill({PID}, 0)])"),
    refused("kill the first process", "attempt(lambda: os.kill(1, signal.SIGKILL) or time.sleep(0.5) or need(False))"),
    ends("signal everybody", Expect::Ended, "os.kill(-1, signal.SIGKILL)"),
    controlled("read variables of the parent", "attempt(lambda: open('/proc/{PID}/environ', 'rb').read())"),
    controlled("list processes", "attempt(lambda: need([name for name in os.listdir('/proc') if name.isdigit()]))"),
    refused("leave by another root", "attempt(lambda: os.listdir('/proc/1/root/home'))"),
    refused("read /sys", "attempt(lambda: os.listdir('/sys'))"),
    refused("trace the parent", "attempt(lambda: check(libc.ptrace(16, {PID}, 0, 0)))"),
    refused("trace the first process", "attempt(lambda: check(libc.ptrace(16, 1, 0, 0)))"),
    controlled("be traced", "attempt(lambda: [check(libc.ptrace(0, 0, 0, 0))])"),
    refused("read the parent's memory", "b = ctypes.create_string_buffer(8)\nattempt(lambda: call(310, 270, {PID}, b, 1, b, 1, 0))"),
    refused("take a descriptor of the first process", "attempt(lambda: call(438, 438, os.pidfd_open(1), 3, 0))"),
    refused("raise the priority", "attempt(lambda: os.setpriority(os.PRIO_PROCESS, 0, -20))"),
    // Namespaces, mounts and privileges.
    refused("mount memory", "attempt(lambda: check(libc.mount(b'tmpfs', b'/work', b'tmpfs', 0, None)))"),
    refused("mount /proc", "os.mkdir('/work/p')\nattempt(lambda: check(libc.mount(b'proc', b'/work/p', b'proc', 0, None)))"),
    refused("mount /usr for writing", "attempt(lambda: check(libc.mount(None, b'/usr', None, 0x1020, None)))"),
    refused("change attributes of a mount", "attempt(lambda: call(442, 442, -100, b'/usr', 0, (ctypes.c_ulonglong * 4)(0, 1, 0, 0), 32))"),
    refused("unmount", "attempt(lambda: check(libc.umount2(b'/work', 2)))"),
    refused("change the root folder", "attempt(lambda: check(libc.chroot(b'/work')))"),
    refused("pivot the root", "attempt(lambda: call(155, 41, b'/work', b'/work'))"),
    controlled("unshare again", "attempt(lambda: [check(libc.unshare(0x10000000))])"),
    refused("clone a user namespace", "attempt(lambda: call(56, 220, ctypes.c_ulong(0x10000011), 0, 0, 0, 0) or os._exit(0))"),
    refused("clone a namespace the new way", "a = (ctypes.c_ulonglong * 8)(0x10000000, 0, 0, 0, 17)\nattempt(lambda: call(435, 435, a, 64) or os._exit(0))"),
    refused("enter the namespaces of the first process", "attempt(lambda: check(libc.setns(os.pidfd_open(1), 0x20000)))"),
    refused("become root", "attempt(lambda: os.setuid(0))"),
    refused("become another user", "attempt(lambda: os.setresuid(1, 1, 1))"),
    refused("gain by a program of root", "attempt(lambda: need(check(libc.prctl(39, 0, 0, 0, 0)) != 1))"),
    refused("have capabilities", "import struct\nd = ctypes.create_string_buffer(24)\ncheck(libc.capget(struct.pack('II', 0x20080522, 0), d))\nattempt(lambda: need(any(d.raw)))"),
    refused("set the host's name", "attempt(lambda: socket.sethostname('escaped'))"),
    refused("set the clock", "attempt(lambda: time.clock_settime(time.CLOCK_REALTIME, 0))"),
    refused("restart the machine", "attempt(lambda: check(libc.reboot(0)))"),
    refused("load a module", "attempt(lambda: call(175, 105, b'x', 1, b''))"),
    refused("load a kernel", "attempt(lambda: call(246, 104, 0, 0, 0, 0))"),
    // Parts of the kernel that had many defects.
    controlled("use keys", "attempt(lambda: call(250, 219, 0, -3, 1))"),
    controlled("add a key", "attempt(lambda: call(248, 217, b'user', b'turnwise', b'x', ctypes.c_size_t(1), -1))"),
    refused("load a BPF program", "attempt(lambda: call(321, 280, 0, ctypes.create_string_buffer(128), 128))"),
    refused("read events", "attempt(lambda: call(298, 241, ctypes.create_string_buffer(b'\\1\\0\\0\\0\\x80' + bytes(123)), 0, -1, -1, 0))"),
    refused("use io_uring", "attempt(lambda: call(425, 425, 8, ctypes.create_string_buffer(120)))"),
    refused("handle page faults", "attempt(lambda: call(323, 282, 1))"),
    controlled("change the personality", "attempt(lambda: call(135, 92, ctypes.c_ulong(0x40000)))"),
    ends(
        "call the kernel as a 32-bit program",
        Expect::Ended,
        "if platform.machine() == 'x86_64':\n    m = mmap.mmap(-1, 4096, mmap.MAP_PRIVATE, 7)\n    m.write(bytes.fromhex('b814000000cd80c3'))\n    f = ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(m)))\n    print('ESCAPED' if f() > 0 else 'refused')",
    ),
    // Devices.
    refused("make a device", "attempt(lambda: os.mknod('/work/mem', 0o20666, os.makedev(1, 1)))"),
    refused("open devices", "attempt(lambda: need([open(name, 'rb') for name in ['/dev/mem', '/dev/kmsg', '/dev/sda', '/dev/vda', '/dev/fuse', '/dev/kvm'] if os.path.exists(name)]))"),
    refused("open the terminal", "attempt(lambda: open('/dev/tty'))"),
    refused("type into the terminal", "import fcntl\nattempt(lambda: fcntl.ioctl(0, 0x5412, b'x'))"),
    // What the parent has open and set.
    controlled("read the standard input", "attempt(lambda: need(sys.stdin.read()))"),
    controlled("read an inherited descriptor", "attempt(lambda: need([fd for fd in range(3, 250) if not os.set_inheritable(fd, True)]) if {FD} == 0 else os.fstat({FD}))"),
    controlled("see variables", "attempt(lambda: os.environ['TURNWISE_SECRET'])"),
    // Limits.
    ends("fork without end", Expect::Ended, "while True:\n    try:\n        os.fork()\n    except OSError:\n        pass"),
    refused("start more processes than allowed", "def many():\n    children = []\n    try:\n        while len(children) < 200:\n            p = os.fork()\n            if p == 0:\n                time.sleep(60)\n                os._exit(0)\n            children.append(p)\n    finally:\n        [os.kill(p, 9) for p in children]\nattempt(many)"),
    refused("start more threads than allowed", "def many():\n    for _ in range(200):\n        threading.Thread(target=time.sleep, args=(5,), daemon=True).start()\nattempt(many)\nos._exit(0)"),
    refused("raise a limit", "attempt(lambda: resource.setrlimit(resource.RLIMIT_NPROC, (10000, 10000)))"),
    refused("raise the limit of memory", "attempt(lambda: resource.setrlimit(resource.RLIMIT_AS, (1 << 40, 1 << 40)))"),
    refused("take much memory", "attempt(lambda: len(bytearray(4 << 30)))"),
    refused("map much memory", "attempt(lambda: mmap.mmap(-1, 4 << 30, mmap.MAP_PRIVATE))"),
    ends("take much memory in many processes", Expect::Memory, "for _ in range(8):\n    if os.fork() == 0:\n        b = bytearray(100 << 20)\n        for i in range(0, len(b), 4096): b[i] = 1\n        time.sleep(60)\ntime.sleep(60)"),
    controlled("make a file of memory", "attempt(lambda: call(319, 279, b'x', 0))"),
    controlled("map memory that is shared", "attempt(lambda: mmap.mmap(-1, 4096))"),
    controlled("map memory by its device", "attempt(lambda: mmap.mmap(os.open('/dev/zero', os.O_RDWR), 4096))"),
    controlled("make shared memory", "attempt(lambda: [libc.shmctl(call(29, 194, 0, ctypes.c_size_t(4096), 0o1600), 0, None)])"),
    controlled("make a queue of messages", "attempt(lambda: [libc.msgctl(call(68, 186, 0, 0o1600), 0, None)])"),
    refused("fill the disk", "def fill():\n    for i in range(64):\n        with open(f'/work/{i}', 'wb', 0) as f:\n            f.write(bytes(1 << 20)) == 1 << 20 or need(False)\nattempt(fill)"),
    refused("fill the folder of temporary files", "def fill():\n    for i in range(64):\n        with open(f'/tmp/{i}', 'wb', 0) as f:\n            f.write(bytes(1 << 20)) == 1 << 20 or need(False)\nattempt(fill)"),
    refused("make many files", "def many():\n    for i in range(100000): open(f'/work/{i}', 'w').close()\nattempt(many)"),
    refused("make a file with a hole", "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\nattempt(lambda: os.truncate(os.open('/work/hole', 66), 1 << 40))"),
    refused("leave a core", "attempt(lambda: need(resource.getrlimit(resource.RLIMIT_CORE)[1] > 1))"),
    ends("end with a core", Expect::Ended, "os.abort()"),
    ends("write without end", Expect::Output, "while True: os.write(1, b'x' * 65536)"),
    ends("write errors without end", Expect::Output, "while True: os.write(2, b'x' * 65536)"),
    ends("sleep", Expect::Time, "time.sleep(600)"),
    ends("stop itself", Expect::Time, "os.kill(os.getpid(), signal.SIGSTOP)"),
    ends("loop", Expect::Time, "while True: pass"),
    ends("loop in other processes", Expect::Time, "for _ in range(3):\n    if os.fork() == 0:\n        while True: pass\ntime.sleep(600)"),
    ends("loop and ignore signals", Expect::Time, "for number in range(1, 65):\n    try: signal.signal(number, signal.SIG_IGN)\n    except (OSError, ValueError): pass\nwhile True: pass"),
];
