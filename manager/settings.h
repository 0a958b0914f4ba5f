/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every setting of the manager, from one table: command line, config file (INI), environment, with --colibri-env the
 * variables of Colibri's engines (colibri_env.h), and defaults, in this order of precedence. Each keeps where its value
 * came from, so that status can show it. What nobody knows is refused, never ignored: an unknown name, a bad value, a name
 * given twice where one is meant. Pure but for reading the config file and the environment; prints nothing.
 *
 * A list (--model, --mirror, --dir) that is given at a higher place replaces the whole list of a lower one.
 */
#ifndef CNRE_MANAGER_SETTINGS_H
#define CNRE_MANAGER_SETTINGS_H

#include <stddef.h>
#include <stdint.h>

#define SETTINGS_LIST_MAX 16u
#define SETTINGS_MIRRORS_MAX 4u
#define SETTINGS_FILE_BYTES_MAX (256u << 10)
#define SETTINGS_COUNT_MAX 64u
#define SETTINGS_LINE_BYTES 1024u
#define SETTINGS_DURATION_MAX_NS (36500ull * 86400 * 1000000000) /* a hundred years: with the clock's own time no sum overflows */

enum settings_hugepages { SETTINGS_HUGEPAGES_AUTO, SETTINGS_HUGEPAGES_1G, SETTINGS_HUGEPAGES_2M, SETTINGS_HUGEPAGES_THP, SETTINGS_HUGEPAGES_4K };
enum settings_io { SETTINGS_IO_AUTO, SETTINGS_IO_URING, SETTINGS_IO_POOL };
enum settings_keeper { SETTINGS_KEEPER_AUTO, SETTINGS_KEEPER_NO };
enum settings_direct { SETTINGS_DIRECT_AUTO, SETTINGS_DIRECT_NO };
enum settings_verify { SETTINGS_VERIFY_NO, SETTINGS_VERIFY_LOAD };

/* Which clients are trusted with the memory of GPUs: who has it open can write to it. */
enum settings_vram_trust { SETTINGS_VRAM_TRUST_OWNER, SETTINGS_VRAM_TRUST_GROUP, SETTINGS_VRAM_TRUST_ALL };

/* Which clients may ask for a residency policy. */
enum settings_client_policy { SETTINGS_CLIENT_POLICY_REFUSE, SETTINGS_CLIENT_POLICY_OWN, SETTINGS_CLIENT_POLICY_ALLOW };

enum settings_source { SETTINGS_DEFAULT, SETTINGS_COLIBRI, SETTINGS_ENVIRONMENT, SETTINGS_FILE, SETTINGS_COMMAND_LINE };

struct settings_list {
	char *item[SETTINGS_LIST_MAX];
	uint32_t count;
};

struct settings_origin {
	enum settings_source source;
	uint32_t line;                    /* of the config file */
	const char *variable;             /* SETTINGS_COLIBRI: which; lives for ever */
	char *text;                       /* as given; NULL for a list or a default */
};

struct settings {
	struct settings_list model, mirror, dir, kv_allow;
	struct settings_list view, try_view; /* NAME or MODEL=NAME */
	uint64_t ram_bytes;               /* 0: automatic */
	uint64_t private_bytes;
	const char *family;               /* NULL: those that are built in */
	const char *socket;               /* NULL: chosen by user id */
	uint32_t socket_mode;             /* permission bits */
	const char *socket_group;         /* NULL: left alone */
	const char *metrics;              /* NULL: off */
	const char *policy;
	uint32_t pool;                    /* enum policy_pool */
	uint32_t client_policy;           /* enum settings_client_policy */
	const char *usage;                /* folder of histories; NULL: none is kept */
	const char *warm;                 /* file of a warm list; NULL: none */
	uint64_t warm_bytes, warm_time_ns; /* 0: no limit */
	const char *config;               /* NULL: none */
	uint64_t idle_exit_ns;            /* 0: never */
	uint32_t hugepages, io, direct, verify; /* enum settings_… */
	int32_t numa;                     /* a node, or CNRE_NUMA_… */
	const char *digests;              /* NULL: in memory only */
	uint64_t scrub_ns;                /* 0: off */
	uint32_t reads_in_flight;         /* per drive; 0: measured */
	uint64_t read_timeout_ns;         /* 0: never */
	const char *drive_weights;        /* NULL: measured */
	uint64_t kv_ram_bytes;            /* 0: KV prefixes are not kept */
	uint64_t kv_disk_bytes;           /* 0: as much as there is */
	uint64_t kv_staging_bytes;        /* of each client in each namespace */
	uint32_t kv_blocks;               /* of each namespace; 0: by the budget */
	const char *kv_dir;               /* NULL: in memory only */
	const char *vram;                 /* a size or "auto" (vram_settings_parse); NULL: no GPU is touched */
	const char *vram_devices;         /* UUIDs with commas between; NULL: all that the driver shows */
	uint64_t vram_reserve_bytes, vram_staging_bytes;
	uint32_t vram_trust;              /* enum settings_vram_trust */
	uint32_t keeper;                  /* enum settings_keeper */
	uint32_t clients_max;
	uint32_t log_level;               /* enum cnre_log_level */
	uint32_t colibri_env;             /* 1: variables of Colibri's engines are honoured */
	uint32_t check, version, help;    /* 1: asked for */

	struct settings_origin origin[SETTINGS_COUNT_MAX]; /* the table's own order */
};

/*
 * settings_open - resolve all sources
 *
 * @argv      of main; argv[0] is skipped
 * @message   receives one line that names the option, variable or file:line, and the nearest known name
 *
 * Returns:  0, -EINVAL (usage: exit status 2), or the error of reading the config file. *ret_settings on success only.
 */
int settings_open(struct settings **ret_settings, int argc, char *const argv[], char *message, size_t message_bytes);
struct settings *settings_close(struct settings *settings); /* NULL is fine */

/* Defaults alone; then one config file's text under the name `file`. For settings_open, tests and the fuzzer. */
int settings_open_defaults(struct settings **ret_settings);
int settings_read_text(struct settings *settings, const char *file, const char *text, size_t bytes, char *message,
		       size_t message_bytes);

/*
 * For colibri_env.c, before the manager's own variables are read: one value of a setting, from a variable of another name,
 * which must live for ever. 0, -EINVAL or -ENOMEM with one line, or -ENOENT: this build has no such setting.
 */
int settings_take_variable(struct settings *settings, const char *name, const char *variable, const char *value,
			   char *message, size_t message_bytes);
int settings_is_list(const char *name); /* 1: may be given several times */
const struct settings_origin *settings_origin_of(const struct settings *settings, const char *name); /* NULL: no such one */

/* One setting as status and --check show it: "ram = 120G (command line)". */
struct settings_line {
	const char *name;
	char value[SETTINGS_LINE_BYTES];
	char source[SETTINGS_LINE_BYTES];
};
/* 1 and the line of the index'th setting, or 0 behind the last. */
int settings_describe(const struct settings *settings, uint32_t index, struct settings_line *ret_line);
/* The source text of one setting by name; "default" for an unknown one. */
const char *settings_source_name(const struct settings *settings, const char *name);

/* For --help and the man page: 1, or 0 behind the last. */
struct settings_help {
	const char *name, *argument, *environment, *default_text, *sentence; /* argument, environment: may be NULL */
};
int settings_help_at(uint32_t index, struct settings_help *ret_help);

/* "10", "10s", "500ms", "5m", "2h", "1d": nanoseconds, SETTINGS_DURATION_MAX_NS at most. 0 or -EINVAL. */
int settings_parse_duration(const char *text, uint64_t *ret_ns);

#endif
