-- Contents that so many guests hold that they are counted apart.
SELECT samples.fingerprint, COUNT(*) AS guests, COUNT(DISTINCT samples.host) AS hosts, SUM(samples.copies) AS pages
FROM samples CROSS JOIN settings
WHERE samples.copies > 0
GROUP BY samples.fingerprint, settings.popular_above
HAVING COUNT(*) > settings.popular_above
