/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The settings, one a line; included by settings.c only. SETTING(name, kind, field, environment, default, low, high,
 * choices, sentence). Kinds and the type of their field: SIZE, DURATION uint64_t; COUNT, OCTAL, CHOICE, FLAG uint32_t;
 * TEXT const char *; NODE int32_t; LIST struct settings_list; LATER none. The default is text that the same parser reads; where it
 * starts with '(' it is words for people and the field stays 0. low and high bound a COUNT; low is the least SIZE, and
 * the first value of a CHOICE; choices of a TEXT are what the help calls its value.
 */
SETTING("model", LIST, model, NULL, "(none)", 0, 0, NULL, "Checkpoint directory to serve; may be repeated.")
SETTING("ram", SIZE, ram_bytes, "CNRE_RAM", "(automatic)", 1, 0, NULL, "Memory for experts; automatic is 80 % of what is free.")
SETTING("private-bytes", SIZE, private_bytes, NULL, "(0)", 0, 0, NULL, "Memory to leave free for the engine that started this manager.")
SETTING("mirror", LIST, mirror, "CNRE_MIRRORS", "(none)", 0, 0, NULL, "Directory with the same shards on another drive; may be repeated.")
SETTING("dir", LIST, dir, "CNRE_DIRS", "(none)", 0, 0, NULL, "Further directory in which shards are looked for; may be repeated.")
SETTING("family", TEXT, family, "CNRE_FAMILY", "(none)", 0, 0, "FILE", "File that describes a model family which is not built in.")
SETTING("socket", TEXT, socket, NULL, "(by user)", 0, 0, "PATH", "Path of the control socket.")
SETTING("socket-mode", OCTAL, socket_mode, NULL, "0660", 0, 0777, NULL, "Permissions of the control socket.")
SETTING("socket-group", TEXT, socket_group, NULL, "(unchanged)", 0, 0, NULL, "Group of the control socket: who may connect.")
SETTING("policy", TEXT, policy, "CNRE_POLICY", "cost", 0, 0, NULL, "Residency policy by name.")
SETTING("pool", CHOICE, pool, NULL, "auto", 0, 0, "auto|global|layer|soft", "From whom the policy takes room: anybody, the same layer, or anybody above a floor; auto is the policy's own.")
SETTING("usage", TEXT, usage, "CNRE_USAGE", "(none)", 0, 0, "DIR", "Folder that keeps how often each expert was used, from one run to the next.")
SETTING("hugepages", CHOICE, hugepages, NULL, "auto", 0, 0, "auto|1G|2M|thp|4k", "Largest kind of page to try for the pool.")
SETTING("numa", NODE, numa, NULL, "interleave", 0, 0, NULL, "Where the pool lies on a machine with NUMA nodes: in turn on all, where the manager runs, or on one.")
SETTING("io", CHOICE, io, NULL, "auto", 0, 0, "auto|uring|pool", "How drives are read: io_uring, or threads where that is forbidden.")
SETTING("direct", CHOICE, direct, NULL, "auto", 0, 0, "auto|no", "Whether reads go past the page cache.")
SETTING("verify", CHOICE, verify, NULL, "no", 0, 0, "no|load", "Whether every load is hashed and compared with what was read before.")
SETTING("digests", TEXT, digests, NULL, "(none)", 0, 0, "FILE", "File that keeps digests of experts from one run to the next.")
SETTING("scrub", DURATION, scrub_ns, NULL, "(off)", 0, 0, NULL, "Time after which the next resident expert is hashed again; 0 is off.")
SETTING("reads-in-flight", COUNT, reads_in_flight, NULL, "(measured)", 0, 1024, NULL, "Experts being read at once per drive; 0 is measured.")
SETTING("read-timeout", DURATION, read_timeout_ns, NULL, "30s", 0, 0, NULL, "Time in which a drive must answer, or what needs it fails; 0 is never.")
SETTING("kv-ram", SIZE, kv_ram_bytes, "CNRE_KV_RAM", "(none)", 1, 0, NULL, "Memory for KV prefix blocks, beside that for experts; without it none are kept.")
SETTING("kv-dir", TEXT, kv_dir, "CNRE_KV_DIR", "(none)", 0, 0, "DIR", "Directory in which KV prefix blocks are saved; several managers and hosts may share it.")
SETTING("kv-disk", SIZE, kv_disk_bytes, "CNRE_KV_DISK", "(unlimited)", 1, 0, NULL, "Bytes of files in it at most; the least valuable go first.")
SETTING("kv-staging", SIZE, kv_staging_bytes, NULL, "64M", 1, 0, NULL, "Memory through which each client passes its blocks; a block is at most half of it.")
SETTING("kv-blocks", COUNT, kv_blocks, NULL, "(by the budget)", 0, CNRE_KV_ENTRIES_MAX, NULL, "KV prefix blocks that each namespace can know of, in memory and in files; 0 is by the budget.")
SETTING("kv-allow", LIST, kv_allow, NULL, "(none)", 0, 0, NULL, "A KV namespace that several users share, as NAME=user:U,group:G; may be repeated.")
SETTING("clients-max", COUNT, clients_max, NULL, "256", 1, CNRE_SESSIONS_MAX, NULL, "Clients attached at once.")
SETTING("idle-exit", DURATION, idle_exit_ns, NULL, "(never)", 0, 0, NULL, "Leave after this long without a client; 0 is never.")
SETTING("keeper", CHOICE, keeper, NULL, "auto", 0, 0, "auto|no", "Whether a keeper process holds what must survive the manager; not needed under systemd.")
SETTING("log-level", CHOICE, log_level, NULL, "info", CNRE_LOG_ERROR, 0, "error|warning|notice|info|debug", "Least important messages to write.")
SETTING("config", TEXT, config, NULL, "(none)", 0, 0, "FILE", "File with these settings, one `name = value` a line.")
SETTING("check", FLAG, check, NULL, "(no)", 0, 0, NULL, "Say what would be done on this machine, and exit.")
SETTING("version", FLAG, version, NULL, "(no)", 0, 0, NULL, "Print the version and exit.")
SETTING("help", FLAG, help, NULL, "(no)", 0, 0, NULL, "Print this and exit.")
SETTING("vram", LATER, check, NULL, "(none)", 0, 0, NULL, "Memory of the GPU for experts.")
