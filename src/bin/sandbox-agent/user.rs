//! Finds a user and the groups of it in the texts of `/etc/passwd` and `/etc/group`.

use crate::system::Identity;

/// A user whom a run may become.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct User {
    /// Its numbers.
    pub(crate) identity: Identity,
    /// Its directory.
    pub(crate) home: String,
}

struct Entry<'a> {
    name: &'a str,
    uid: u32,
    gid: u32,
    home: &'a str,
}

/// Finds the user of `name`, `uid`, or either with `:group` or `:gid`.
///
/// A group that is named stands alone; else those are added whose members name the user.
/// A number needs no entry: its group is 0 then, and its directory `/`.
///
/// # Errors
/// Says what is not there.
pub(crate) fn find(wanted: &str, passwd: &str, group: &str) -> Result<User, String> {
    let (name, of_group) = match wanted.split_once(':') {
        Some((name, of_group)) => (name, Some(of_group)),
        None => (wanted, None),
    };
    let entry = entries(passwd).find(|one| one.name == name);
    let number = name.parse::<u32>().ok();
    let entry = entry.or_else(|| entries(passwd).find(|one| Some(one.uid) == number));
    let uid = entry.as_ref().map(|one| one.uid).or(number);
    let uid = uid.ok_or_else(|| format!("there is no user {name:?}"))?;
    let (gid, groups) = if let Some(of_group) = of_group {
        let gid = gid(of_group, group);
        let gid = gid.ok_or_else(|| format!("there is no group {of_group:?}"))?;
        (gid, vec![gid])
    } else {
        let gid = entry.as_ref().map_or(0, |one| one.gid);
        let mut groups = vec![gid];
        groups.extend(entry.iter().flat_map(|one| memberships(one.name, group)));
        groups.dedup();
        (gid, groups)
    };
    let home = entry.map(|one| one.home).filter(|home| !home.is_empty());
    Ok(User {
        identity: Identity { uid, gid, groups },
        home: home.unwrap_or("/").to_owned(),
    })
}

fn entries(passwd: &str) -> impl Iterator<Item = Entry<'_>> {
    passwd.lines().filter_map(|line| {
        let mut fields = line.split(':');
        let (name, _password) = (fields.next()?, fields.next()?);
        let uid = fields.next()?.parse().ok()?;
        let gid = fields.next()?.parse().ok()?;
        let (_comment, home) = (fields.next()?, fields.next()?);
        Some(Entry {
            name,
            uid,
            gid,
            home,
        })
    })
}

fn groups(group: &str) -> impl Iterator<Item = (&str, u32, &str)> {
    group.lines().filter_map(|line| {
        let mut fields = line.split(':');
        let (name, _password) = (fields.next()?, fields.next()?);
        let gid = fields.next()?.parse().ok()?;
        Some((name, gid, fields.next().unwrap_or_default()))
    })
}

fn gid(wanted: &str, group: &str) -> Option<u32> {
    let named = groups(group).find(|(name, _, _)| *name == wanted);
    named.map(|(_, gid, _)| gid).or(wanted.parse().ok())
}

fn memberships(user: &str, group: &str) -> Vec<u32> {
    let has = |members: &str| members.split(',').any(|member| member.trim() == user);
    let own = groups(group).filter(|(_, _, members)| has(members));
    own.map(|(_, gid, _)| gid).take(GROUPS_MAX).collect()
}

/// Groups of one user.
const GROUPS_MAX: usize = 1024;

#[cfg(test)]
mod tests {
    use super::find;

    const PASSWD: &str = "root:x:0:0:root:/root:/bin/sh\nbad line\n\
        ann:x:1000:100:Ann:/home/ann:/bin/sh\nnowhere:x:7:7:::\n";
    const GROUP: &str = "root:x:0:\nusers:x:100:\nwheel:x:10:root,ann\nvideo:x:44: ann\n";

    fn numbers(wanted: &str) -> Result<(u32, u32, Vec<u32>, String), String> {
        let user = find(wanted, PASSWD, GROUP)?;
        let one = user.identity;
        Ok((one.uid, one.gid, one.groups, user.home))
    }

    #[test]
    fn a_user_is_found_by_its_name_or_number_with_its_groups() {
        let ann = (1000, 100, vec![100, 10, 44], "/home/ann".to_owned());
        assert_eq!(numbers("ann"), Ok(ann.clone()));
        assert_eq!(numbers("1000"), Ok(ann));
        assert_eq!(numbers("nowhere").unwrap().3, "/");
    }

    #[test]
    fn a_group_that_is_named_stands_alone() {
        let ann = |gid: u32| (1000, gid, vec![gid], "/home/ann".to_owned());
        assert_eq!(numbers("ann:wheel"), Ok(ann(10)));
        assert_eq!(numbers("1000:4242"), Ok(ann(4242)));
        assert_eq!(numbers("5:6"), Ok((5, 6, vec![6], "/".to_owned())));
    }

    #[test]
    fn a_number_needs_no_entry_but_a_name_does() {
        assert_eq!(numbers("12345"), Ok((12345, 0, vec![0], "/".to_owned())));
        for wanted in ["nobody", "", ":", "ann:nothing", "-1", "4294967296"] {
            assert!(numbers(wanted).is_err(), "{wanted:?}");
        }
    }
}
