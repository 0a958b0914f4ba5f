/* SPDX-License-Identifier: Apache-2.0 */
/* cnre_attach and cnre_detach: what is found, what is refused, what stays. */
#include "base/clock.h"
#include "client/endpoint.h"
#include "tests/support/attached.h"

#include <criterion/criterion.h>
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

TestSuite(client_attach, .timeout = 30);

static int attach_to(const char *socket, const char *model, int64_t timeout_ns, struct cnre **ret_client)
{
	struct cnre_options options = {
		.size = sizeof options, .socket = socket, .timeout_ns = timeout_ns, .flags = CNRE_NO_AUTOSTART};

	return cnre_attach(ret_client, model, &options);
}

static int count_descriptors(void)
{
	DIR *directory = opendir("/proc/self/fd");
	int count = 0;

	while (readdir(directory) != NULL)
		count++;
	(void)closedir(directory);
	return count;
}

Test(client_attach, none_fails_at_once)
{
	struct cnre *client = (void *)1;

	cr_expect_eq(attach_to("none", "/no/such/model", -1, &client), -ECONNREFUSED);
	(void)setenv("CNRE_SOCKET", "none", 1);
	cr_expect_eq(attach_to(NULL, FAKE_HOST_MODEL, -1, &client), -ECONNREFUSED);
	cr_expect_eq(client, (void *)1);
}

Test(client_attach, bad_arguments_are_refused)
{
	struct cnre_options options = {.size = sizeof options, .socket = "/nowhere"};
	struct {
		struct cnre_options options;
		uint64_t later;
	} longer = {.options = {.size = sizeof longer, .socket = "/nowhere"}, .later = 1};
	struct cnre *client = (void *)1;

	cr_expect_eq(cnre_attach(NULL, FAKE_HOST_MODEL, NULL), -EINVAL);
	cr_expect_eq(cnre_attach(&client, NULL, &options), -EINVAL);
	cr_expect_eq(cnre_attach(&client, "", &options), -EINVAL);
	options.size = 0;
	cr_expect_eq(cnre_attach(&client, FAKE_HOST_MODEL, &options), -EINVAL);
	cr_expect_eq(cnre_attach(&client, FAKE_HOST_MODEL, &longer.options), -EINVAL,
		     "it asks for what this version does not know");
	longer.later = 0;
	cr_expect_eq(cnre_attach(&client, FAKE_HOST_MODEL, &longer.options), -ECONNREFUSED);
	cr_expect_eq(client, (void *)1);
}

Test(client_attach, socket_path_longer_than_an_address_holds_is_einval)
{
	struct cnre *client = (void *)1;
	char path[109];

	memset(path, 'a', sizeof path - 1);
	path[0] = '/';
	path[108] = '\0';
	cr_expect_eq(attach_to(path, FAKE_HOST_MODEL, -1, &client), -EINVAL);
	(void)setenv("CNRE_SOCKET", path, 1);
	cr_expect_eq(attach_to(NULL, FAKE_HOST_MODEL, -1, &client), -EINVAL);
	path[107] = '\0';
	cr_expect_eq(attach_to(path, FAKE_HOST_MODEL, -1, &client), -ECONNREFUSED, "107 bytes fit");
	cr_expect_eq(client, (void *)1);
}

Test(client_attach, nobody_at_a_given_socket_is_econnrefused)
{
	struct cnre *client;

	cr_expect_eq(attach_to("/tmp/cnre-no-such-directory/socket", FAKE_HOST_MODEL, -1, &client), -ECONNREFUSED);
	cr_expect_eq(attach_to("/tmp/cnre-no-such-directory/socket", "/no/such/model", -1, &client), -ENOENT);
}

Test(client_attach, answer_of_the_manager_is_the_result)
{
	static const int codes[] = {-ENOENT, -EACCES, -ENOTSUP, -ENOSPC, -ESTALE};

	for (unsigned i = 0; i < sizeof codes / sizeof codes[0]; i++) {
		struct fake_host_setup setup = {.welcome_status = codes[i]};
		struct fake_host *host = fake_host_start(&setup);
		struct cnre *client = (void *)1;

		cr_expect_eq(attach_to(fake_host_socket(host), FAKE_HOST_MODEL, -1, &client), codes[i]);
		cr_expect_eq(client, (void *)1);
		fake_host_stop(host);
	}
}

Test(client_attach, silent_manager_is_etimedout)
{
	struct fake_host_setup setup = {.ignored_hellos = 1};
	struct fake_host *host = fake_host_start(&setup);
	struct cnre *client;

	cr_expect_eq(attach_to(fake_host_socket(host), FAKE_HOST_MODEL, 20000000, &client), -ETIMEDOUT);
	fake_host_stop(host);
}

Test(client_attach, end_of_file_before_the_first_answer_starts_over)
{
	struct fake_host_setup setup = {.eof_count = 3};
	struct fake_host *host = fake_host_start(&setup);
	struct cnre *client;

	cr_assert_eq(attach_to(fake_host_socket(host), FAKE_HOST_MODEL, -1, &client), 0);
	attached_stop(host, client);
}

Test(client_attach, environment_names_the_socket)
{
	struct fake_host *host = fake_host_start(NULL);
	struct cnre *client;

	(void)setenv("CNRE_SOCKET", fake_host_socket(host), 1);
	cr_assert_eq(attach_to(NULL, FAKE_HOST_MODEL, 0, &client), 0,
		     "0 still allows for the answer of a manager that is there");
	attached_stop(host, client);
}

Test(client_attach, second_attach_of_a_model_is_ebusy_until_detach)
{
	struct cnre *client, *second = (void *)1;
	struct fake_host *host = attached_start(NULL, &client);

	cr_expect_eq(attached_again(fake_host_socket(host), &second), -EBUSY);
	cr_expect_eq(second, (void *)1);
	cr_expect_eq(fake_host_sessions(host), 1);
	cnre_detach(client);
	cr_expect_eq(attached_again(fake_host_socket(host), &second), 0);
	attached_stop(host, second);
}

Test(client_attach, model_is_described)
{
	struct cnre *client;
	struct fake_host *host = attached_start(NULL, &client);
	struct {
		struct cnre_model_info info;
		uint64_t later;
	} longer = {.info = {.size = sizeof longer}, .later = 7};
	struct cnre_model_info *info = &longer.info;

	cr_assert_eq(cnre_model(client, info), 0);
	cr_expect_eq(info->size, sizeof longer);
	cr_expect_eq(longer.later, 0, "what this version does not know is cleared");
	cr_expect_str_eq(info->family, "fake-family");
	cr_expect_eq(info->layer_count, 4);
	cr_expect_eq(info->expert_count, EXPERTS);
	cr_expect_eq(info->object_count, 64);
	cr_expect_eq(info->reserve_bytes, 8 * 4096);
	cr_expect_eq(info->reserve_objects, 8);
	cr_expect_eq(info->capabilities, CNRE_CAP_EXPERT_CACHE);
	cr_expect_str_eq(info->view, "");
	cr_expect_eq(info->view_version, 0);
	info->size = offsetof(struct cnre_model_info, view); /* a program of the first version */
	info->view_version = info->reserve_objects = 7;
	cr_expect_eq(cnre_model(client, info), 0);
	cr_expect_eq(info->view_version, 7, "nothing behind the caller's struct is written");
	cr_expect_eq(info->reserve_objects, 7);
	info->size--;
	cr_expect_eq(cnre_model(client, info), -EINVAL);
	cr_expect_eq(cnre_model(client, NULL), -EINVAL);
	cr_expect_eq(cnre_model(NULL, info), -EINVAL);
	attached_stop(host, client);
}

/* This manager's catalog says that its bytes lie as in the checkpoint, whatever is asked for. */
Test(client_attach, another_view_than_was_asked_for_is_ebadmsg)
{
	struct fake_host *host = fake_host_start(NULL);
	struct cnre_options options = {
		.size = sizeof options, .socket = fake_host_socket(host), .timeout_ns = SECOND_NS, .view = "rows16"};
	struct cnre *client = NULL;

	cr_expect_eq(cnre_attach(&client, FAKE_HOST_MODEL, &options), -EBADMSG);
	cr_expect_null(client);
	options.view = "";
	cr_expect_eq(cnre_attach(&client, FAKE_HOST_MODEL, &options), 0);
	cnre_detach(client);
	fake_host_stop(host);
}

Test(client_attach, detach_leaves_nothing)
{
	struct fake_host *host = fake_host_start(NULL);
	struct cnre *client;
	int before = count_descriptors();

	for (unsigned i = 0; i < 20; i++) {
		cr_assert_eq(attached_again(fake_host_socket(host), &client), 0);
		cnre_detach(client);
	}
	cr_expect_eq(fake_host_detaches(host), 20);
	cr_expect_eq(fake_host_sessions(host), 0);
	cr_expect_eq(count_descriptors(), before);
	cnre_detach(NULL);
	fake_host_stop(host);
}

Test(client_attach, detach_with_a_lease_out_keeps_the_bytes)
{
	struct cnre *client, *again;
	struct fake_host *host = attached_start(NULL, &client);
	struct cnre_expert view;

	cr_assert_eq(cnre_acquire(client, 0, 1, -1, &view), 0);
	cnre_detach(client);
	cr_expect(attached_is_right(&view));
	cr_expect_eq(fake_host_evict(host, 1), 0);
	cr_expect_eq(attached_again(fake_host_socket(host), &again), 0, "the model may be attached again");
	cnre_detach(again);
	cr_expect_eq(fake_host_sessions(host), 1);
	fake_host_stop(host);
}

Test(client_attach, pool_of_several_segments_with_a_hole_is_mapped)
{
	struct fake_host_setup setup = {.segment_count = 5, .hole = 3};
	struct cnre *client;
	struct fake_host *host = attached_start(&setup, &client);
	struct cnre_expert view;

	for (uint32_t i = 0; i < EXPERTS; i++) {
		cr_assert_eq(cnre_acquire(client, 0, i, -1, &view), 0);
		cr_expect(attached_is_right(&view));
		cr_assert_eq(cnre_release(client, &view), 0);
	}
	attached_stop(host, client);
}

Test(client_attach, segment_that_appears_later_is_mapped_on_demand)
{
	struct fake_host_setup setup = {.segment_count = 4, .segments_shown = 1};
	struct cnre *client;
	struct fake_host *host = attached_start(&setup, &client);
	struct cnre_expert view;

	cr_assert_eq(cnre_acquire(client, 0, 0, -1, &view), 0);
	cr_assert_eq(cnre_release(client, &view), 0);
	cr_expect_eq(cnre_acquire(client, 0, 3, -1, &view), -EBADMSG, "a place in no segment");
	cr_expect_eq(fake_host_leases(host, 3), 0);
	fake_host_show_segments(host, 4);
	cr_assert_eq(cnre_acquire(client, 0, 3, -1, &view), 0);
	cr_expect(attached_is_right(&view));
	cr_assert_eq(cnre_release(client, &view), 0);
	attached_stop(host, client);
}

Test(client_attach, absent_capabilities_say_so)
{
	struct cnre *client;
	struct fake_host *host = attached_start(NULL, &client);
	struct cnre_kv_identity identity = {.size = sizeof identity};
	struct cnre_kv *kv = (void *)1;
	struct cnre_expert view = {0};

	cr_expect_eq(cnre_kv_open(client, NULL, &identity, &kv), -ENOTSUP);
	cr_expect_eq(kv, (void *)1);
	cr_expect_eq(cnre_acquire_vram(client, 0, 0, 0, 0, &view), -ENODEV);
	cr_expect_eq(cnre_acquire_vram(client, 99, 0, 0, 0, &view), -ENOENT);
	cr_expect_eq(cnre_release_on_stream(client, &view, NULL), 0);
	cr_expect_str_eq(cnre_version(), CNRE_VERSION);
	attached_stop(host, client);
}

/* ---- per-user directory ---- */

static const unsigned char identity[32] = {0xab, 0xcd};

Test(client_attach, own_socket_lies_in_the_runtime_directory_under_the_identity)
{
	struct cnre_endpoint endpoints[CNRE_ENDPOINTS_MAX];
	char directory[] = "/tmp/cnre-test-XXXXXX";
	char expected[128];

	cr_assert_not_null(mkdtemp(directory));
	(void)unsetenv("CNRE_SOCKET");
	(void)setenv("XDG_RUNTIME_DIR", directory, 1);
	cr_assert_eq(cnre_endpoint_list(NULL, identity, endpoints), 2);
	(void)snprintf(expected, sizeof expected, "%s/cnre/abcd000000000000.sock", directory);
	cr_expect_str_eq(endpoints[0].path, CNRE_SYSTEM_SOCKET);
	cr_expect_not(endpoints[0].may_start);
	cr_expect_str_eq(endpoints[1].path, expected);
	cr_expect(endpoints[1].may_start);
	cr_expect_eq(cnre_endpoint_list(NULL, NULL, endpoints), 1, "without an identity there is no own manager");
	*strrchr(expected, '/') = '\0';
	(void)rmdir(expected);
	(void)rmdir(directory);
}

Test(client_attach, runtime_directory_that_others_could_fill_is_not_used)
{
	struct cnre_endpoint endpoints[CNRE_ENDPOINTS_MAX];
	char directory[] = "/tmp/cnre-test-XXXXXX";
	char inner[64], target[64];

	cr_assert_not_null(mkdtemp(directory));
	(void)snprintf(inner, sizeof inner, "%s/cnre", directory);
	(void)snprintf(target, sizeof target, "%s/target", directory);
	cr_assert_eq(mkdir(target, 0700), 0);
	cr_assert_eq(symlink(target, inner), 0);
	(void)unsetenv("CNRE_SOCKET");
	(void)setenv("XDG_RUNTIME_DIR", directory, 1);
	if (cnre_endpoint_list(NULL, identity, endpoints) == 2)
		cr_expect_neq(strncmp(endpoints[1].path, directory, strlen(directory)), 0, "a link");
	cr_assert_eq(unlink(inner), 0);
	cr_assert_eq(mkdir(inner, 0700), 0);
	cr_assert_eq(chmod(inner, 0777), 0);
	if (cnre_endpoint_list(NULL, identity, endpoints) == 2)
		cr_expect_neq(strncmp(endpoints[1].path, directory, strlen(directory)), 0, "writable by others");
	(void)rmdir(inner);
	(void)rmdir(target);
	(void)rmdir(directory);
}

Test(client_attach, a_manager_short_of_descriptors_is_asked_again_until_time_is_up)
{
	struct fake_host *host = fake_host_start(&(struct fake_host_setup){.welcome_status = -EMFILE});
	struct cnre_options options = {
		.size = sizeof options, .socket = fake_host_socket(host), .timeout_ns = 200000000};
	struct cnre *client = NULL;
	int64_t before_ns = cnre_clock_now_ns();

	cr_expect_eq(cnre_attach(&client, FAKE_HOST_MODEL, &options), -EMFILE);
	cr_expect_geq(cnre_clock_now_ns() - before_ns, 200000000);
	fake_host_stop(host);
}
