/* SPDX-License-Identifier: Apache-2.0 */
/* What can be said of the KV store's settings before there is one, for --check and for the start; see kv.h. */
#include "manager/kv_inner.h"

#include "base/size.h"
#include "manager/kv_access.h"
#include "manager/settings.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

const char *kv_settings_unused(const struct settings *settings)
{
	int more = settings->kv_dir != NULL || settings->kv_disk_bytes > 0 || settings->kv_allow.count > 0;

	if (settings->kv_ram_bytes == 0 && more)
		return "without --kv-ram no KV prefixes are kept: --kv-dir, --kv-disk and --kv-allow say nothing";
	if (settings->kv_dir == NULL && settings->kv_disk_bytes > 0)
		return "without --kv-dir no KV prefixes are saved: --kv-disk says nothing";
	return NULL;
}

int kv_settings_check_ram(const struct settings *settings, char message[KV_MESSAGE_BYTES])
{
	char size[16];

	if (settings->kv_ram_bytes >= KV_RAM_MIN)
		return 0;
	(void)snprintf(message, KV_MESSAGE_BYTES, "--kv-ram %s holds nothing of use: ask for 4M at least",
		       cnre_size_format(settings->kv_ram_bytes, size, sizeof size));
	return -EINVAL;
}

/* The last part of the path is made if it is missing. */
static int check_directory(const char *path, char message[KV_MESSAGE_BYTES])
{
	size_t length = strlen(path);
	char parent[4096];
	struct stat status;
	int r = stat(path, &status) < 0 ? -errno : S_ISDIR(status.st_mode) ? 0 : -ENOTDIR;

	if (r == 0)
		r = access(path, W_OK | X_OK) < 0 ? -errno : 0;
	while (length > 0 && path[length - 1] == '/')
		length--;
	while (length > 0 && path[length - 1] != '/')
		length--;
	(void)snprintf(parent, sizeof parent, "%.*s", (int)length, path);
	if (r == -ENOENT && access(length == 0 ? "." : parent, W_OK | X_OK) == 0)
		return 0;
	if (r < 0)
		(void)snprintf(message, KV_MESSAGE_BYTES, "--kv-dir %.160s: %s: make it, or name another directory", path,
			       strerror(-r));
	return r;
}

int kv_settings_check(const struct settings *settings, char message[KV_MESSAGE_BYTES])
{
	struct kv_access *access;
	int r = settings->kv_ram_bytes == 0 ? 0 : kv_settings_check_ram(settings, message);

	if (r < 0 || settings->kv_ram_bytes == 0)
		return r;
	r = kv_access_open(&access, &settings->kv_allow, message);
	if (r < 0)
		return r;
	(void)kv_access_close(access);
	return settings->kv_dir == NULL ? 0 : check_directory(settings->kv_dir, message);
}
