/* SPDX-License-Identifier: Apache-2.0 */
/* Starting a manager on demand, with shell scripts in its place. */
#include "client/autostart.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

static char directory[64];
static struct cnre_endpoint endpoint;

static void open_directory(void)
{
	(void)strcpy(directory, "/tmp/cnre-test-XXXXXX");
	cr_assert_not_null(mkdtemp(directory));
	(void)snprintf(endpoint.path, sizeof endpoint.path, "%s/m.sock", directory);
	(void)snprintf(endpoint.log, sizeof endpoint.log, "%s/m.log", directory);
}

static void close_directory(void)
{
	static const char *const names[] = {"m.sock", "m.log", "m.sock.lock", "manager", "out"};
	char path[128];

	for (unsigned i = 0; i < sizeof names / sizeof names[0]; i++) {
		(void)snprintf(path, sizeof path, "%s/%s", directory, names[i]);
		(void)unlink(path);
	}
	(void)rmdir(directory);
}

TestSuite(client_autostart, .init = open_directory, .fini = close_directory, .timeout = 20);

static void write_manager(const char *script)
{
	char path[128];
	FILE *file;

	(void)snprintf(path, sizeof path, "%s/manager", directory);
	file = fopen(path, "w");
	cr_assert_not_null(file);
	(void)fprintf(file, "#!/bin/sh\n%s\n", script);
	(void)fclose(file);
	cr_assert_eq(chmod(path, 0700), 0);
	(void)setenv("CNRE_MANAGERD", path, 1);
}

static void await_end(int life)
{
	struct pollfd wanted = {.fd = life};

	cr_assert_eq(poll(&wanted, 1, 10000), 1);
	cr_expect(cnre_autostart_has_ended(life));
}

static void read_text(const char *name, char *text, size_t size)
{
	char path[128];
	ssize_t got;
	int fd;

	(void)snprintf(path, sizeof path, "%s/%s", directory, name);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	cr_assert_geq(fd, 0);
	got = read(fd, text, size - 1);
	text[got > 0 ? got : 0] = '\0';
	(void)close(fd);
}

Test(client_autostart, manager_gets_its_arguments_and_nothing_of_ours)
{
	char text[1024], expected[512];
	int life = -1, ours = open("/dev/null", O_RDONLY); /* not CLOEXEC, as an engine's may be */

	cr_assert_geq(ours, 0);
	write_manager("cd \"$(dirname \"$0\")\"; { echo \"$@\"; ls /proc/$$/fd | tr '\\n' ' '; } >out; echo said >&2");
	cr_assert_eq(cnre_autostart("/models/one", &endpoint, 4096, "", &life), 0);
	await_end(life);
	(void)close(life);
	read_text("out", text, sizeof text);
	(void)snprintf(expected, sizeof expected,
		       "--model /models/one --socket %s --idle-exit 10s --private-bytes 4096 --client-policy own\n", endpoint.path);
	cr_expect_eq(strncmp(text, expected, strlen(expected)), 0, "%s", text);
	/* The shell itself holds its script as 10 or above. */
	for (char digit = '3'; digit <= '9'; digit++) {
		char name[] = {' ', digit, ' ', '\0'};

		cr_expect_null(strstr(text + strlen(expected) - 1, name), "%s", text);
	}
	read_text("m.log", text, sizeof text);
	cr_expect_str_eq(text, "said\n");
	(void)close(ours);
}

Test(client_autostart, manager_is_asked_for_the_view)
{
	char text[1024];
	int life = -1;

	write_manager("cd \"$(dirname \"$0\")\"; echo \"$@\" >out");
	cr_assert_eq(cnre_autostart("/models/one", &endpoint, 0, "rows16", &life), 0);
	await_end(life);
	(void)close(life);
	read_text("out", text, sizeof text);
	cr_expect_not_null(strstr(text, "--private-bytes 0 --client-policy own --try-view rows16\n"), "%s", text);
}

Test(client_autostart, missing_program_is_enoent)
{
	int life = -7;

	(void)setenv("CNRE_MANAGERD", "/no/such/program", 1);
	cr_expect_eq(cnre_autostart("/models/one", &endpoint, 0, "", &life), -ENOENT);
	cr_expect_eq(life, -7);
}

Test(client_autostart, log_of_an_earlier_start_gives_way_to_why_this_one_failed)
{
	char text[512], path[128];
	int life = -1;
	FILE *file;

	(void)setenv("CNRE_MANAGERD", "/no/such/program", 1);
	file = fopen(endpoint.log, "w");
	cr_assert_not_null(file);
	(void)fputs("of yesterday\n", file);
	(void)fclose(file);
	cr_expect_eq(cnre_autostart("/models/one", &endpoint, 0, "", &life), -ENOENT);
	read_text("m.log", text, sizeof text);
	cr_expect_str_eq(text, "libcnre: CNRE_MANAGERD=/no/such/program: not a program that may be run\n");
	(void)snprintf(path, sizeof path, "%s/manager", directory);
	file = fopen(path, "w"); /* may be run, and cannot: neither a script nor a program */
	cr_assert_not_null(file);
	(void)fputs("#!/no/such/interpreter\n", file);
	(void)fclose(file);
	cr_assert_eq(chmod(path, 0700), 0);
	(void)setenv("CNRE_MANAGERD", path, 1);
	cr_assert_eq(cnre_autostart("/models/one", &endpoint, 0, "", &life), 0);
	await_end(life);
	(void)close(life);
	read_text("m.log", text, sizeof text);
	cr_expect_not_null(strstr(text, "libcnre: cannot run "), "%s", text);
	cr_expect_not_null(strstr(text, "No such file or directory\n"), "%s", text);
}

Test(client_autostart, running_manager_has_not_ended)
{
	int life = -1, writer;
	char text[32], path[128];

	/* It runs until its fifo is opened for writing. */
	(void)snprintf(path, sizeof path, "%s/out", directory);
	cr_assert_eq(mkfifo(path, 0600), 0);
	write_manager("read line <\"$(dirname \"$0\")/out\"; echo \"$line\" >&2");
	cr_assert_eq(cnre_autostart("/models/one", &endpoint, 0, "", &life), 0);
	cr_expect_not(cnre_autostart_has_ended(life));
	writer = open(path, O_WRONLY | O_CLOEXEC);
	cr_assert_geq(writer, 0);
	cr_assert_eq(write(writer, "bye\n", 4), 4);
	(void)close(writer);
	await_end(life);
	(void)close(life);
	read_text("m.log", text, sizeof text);
	cr_expect_str_eq(text, "bye\n");
}

Test(client_autostart, lock_of_another_manager_is_seen)
{
	char path[128];
	int fd;

	cr_expect_not(cnre_autostart_is_locked(&endpoint));
	(void)snprintf(path, sizeof path, "%s.lock", endpoint.path);
	fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	cr_assert_geq(fd, 0);
	cr_expect_not(cnre_autostart_is_locked(&endpoint));
	cr_assert_eq(flock(fd, LOCK_EX), 0);
	cr_expect(cnre_autostart_is_locked(&endpoint));
	(void)close(fd);
}
