/* SPDX-License-Identifier: Apache-2.0 */
/* tools/inspect/preflight.c, options.c: each thing that can be missing has a sentence of its own. */
#include "tools/inspect/options.h"
#include "tools/inspect/preflight.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define ALL ((1ull << 39) | (1ull << 38))
#define SYS_ADMIN (1ull << 21)

static char message[PREFLIGHT_MESSAGE_BYTES], root[64];

static void run(const char *format, const char *value)
{
	char command[512];

	(void)snprintf(command, sizeof command, format, root, value);
	cr_assert_eq(system(command), 0);
}

/* A machine as it should be. */
static void make_root(void)
{
	(void)snprintf(root, sizeof root, "/tmp/cnre-preflight-XXXXXX");
	cr_assert_not_null(mkdtemp(root));
	run("cd %s && mkdir -p sys/kernel/btf sys/kernel/security sys/bus/event_source/devices/uprobe/format proc/sys/kernel%s", "");
	run("cd %s && touch sys/kernel/btf/vmlinux sys/bus/event_source/devices/uprobe/type%s", "");
	run("cd %s && touch sys/bus/event_source/devices/uprobe/format/ref_ctr_offset%s", "");
	run("cd %s && echo 4 >proc/sys/kernel/perf_event_paranoid%s", "");
	run("cd %s && echo '[none] integrity confidentiality' >sys/kernel/security/lockdown%s", "");
}

static void remove_root(void)
{
	run("rm -rf %s%s", "");
}

TestSuite(inspect_preflight, .init = make_root, .fini = remove_root);

static int check(uint64_t capabilities, const char *btf)
{
	const struct preflight preflight = {.root = root, .btf = btf, .capabilities = capabilities};

	message[0] = '\0';
	return preflight_check(&preflight, message);
}

static void says(const char *part)
{
	cr_expect_not_null(strstr(message, part), "no \"%s\" in: %s", part, message);
	cr_expect_null(strchr(message, '\n'), "one line: %s", message);
}

Test(inspect_preflight, nothing_is_missing)
{
	cr_expect_eq(check(ALL, NULL), 0, "%s", message);
	cr_expect_eq(check(SYS_ADMIN, NULL), 0, "%s", message);
}

Test(inspect_preflight, capabilities_are_named)
{
	cr_expect_eq(check(0, NULL), -EPERM);
	says("lacks CAP_BPF and CAP_PERFMON");
	cr_expect_eq(check(1ull << 39, NULL), -EPERM);
	says("lacks CAP_PERFMON:");
	cr_expect_eq(check(1ull << 38, NULL), -EPERM);
	says("lacks CAP_BPF:");
}

Test(inspect_preflight, the_kernels_types_are_missing)
{
	run("rm %s/sys/kernel/btf/vmlinux%s", "");
	cr_expect_eq(check(ALL, NULL), -ENOENT);
	says(PREFLIGHT_BTF);
	says("CONFIG_DEBUG_INFO_BTF");
	cr_expect_eq(check(ALL, "/nonexistent/btf"), -ENOENT);
	says("/nonexistent/btf, which $" PREFLIGHT_BTF_VARIABLE " names");
	cr_expect_eq(check(ALL, "/proc/self/status"), 0, "another file is named");
}

Test(inspect_preflight, uprobes_are_missing_or_cannot_count)
{
	run("rm %s/sys/bus/event_source/devices/uprobe/format/ref_ctr_offset%s", "");
	cr_expect_eq(check(ALL, NULL), -ENOSYS);
	says("ref_ctr_offset");
	run("rm %s/sys/bus/event_source/devices/uprobe/type%s", "");
	cr_expect_eq(check(ALL, NULL), -ENOSYS);
	says("CONFIG_UPROBE_EVENTS");
}

Test(inspect_preflight, the_kernel_is_locked_down)
{
	run("echo 'none integrity [confidentiality]' >%s/sys/kernel/security/lockdown%s", "");
	cr_expect_eq(check(ALL, NULL), -EACCES);
	says("locked down");
	run("echo 'none [integrity] confidentiality' >%s/sys/kernel/security/lockdown%s", "");
	cr_expect_eq(check(ALL, NULL), 0);
}

Test(inspect_preflight, a_refusal_names_the_settings_that_are_in_the_way)
{
	const struct preflight preflight = {.root = root, .capabilities = ALL};

	preflight_explain(&preflight, "attaching", -EPERM, message);
	says("attaching: refused");
	says("perf_event_paranoid is 4");
	says("lockdown is [none]");
	preflight_explain(&preflight, "loading", -ENOMEM, message);
	says("RLIMIT_MEMLOCK");
	preflight_explain(&preflight, "loading", -EINVAL, message);
	says("loading: Invalid argument");
}

/* ---- options ---- */

static int parse(struct options *options, const char *line)
{
	static char copy[256];
	char *argv[16] = {"cnre-inspect"};
	int argc = 1;

	(void)snprintf(copy, sizeof copy, "%s", line);
	for (char *word = strtok(copy, " "); word != NULL; word = strtok(NULL, " "))
		argv[argc++] = word;
	return inspect_options_parse(argc, argv, options, message);
}

Test(inspect_options, before_and_after_the_verb)
{
	struct options options;

	cr_assert_eq(parse(&options, "--seconds 2.5 waits --socket /s --interval 1 --top 3 --json"), 0);
	cr_expect_str_eq(options.verb, "waits");
	cr_expect_str_eq(options.socket, "/s");
	cr_expect(options.seconds == 2.5 && options.interval == 1 && options.top == 3 && options.json);
	cr_assert_eq(parse(&options, "leases --manager 12 --threshold 0 --library /l"), 0);
	cr_expect(options.manager == 12 && options.threshold == 0);
	cr_expect_str_eq(options.library, "/l");
}

Test(inspect_options, what_is_wrong_is_said_and_the_output_untouched)
{
	static const char *const wrong[] = {"io --seconds x", "io --seconds 0",	  "io --manager 0",  "io --manager -3", "io --top 0",
					    "io --top 9x",    "io --interval 0.1", "io --nonsense", "io waits",	       "io --socket",
					    "io --threshold -1", "io --socket /s --manager 3", "io -- waits"};
	struct options options = {.verb = "old"};

	for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
		message[0] = '\0';
		cr_expect_eq(parse(&options, wrong[i]), -EINVAL, "%s", wrong[i]);
		cr_expect_neq(message[0], '\0', "%s", wrong[i]);
		cr_expect_str_eq(options.verb, "old");
	}
}
